// Publish one failed call. The balancer must be Java's (murmur2), so that all publishers agree on a session's partition.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
)

func event(session, kind string, more map[string]any) kafka.Message {
	fields := map[string]any{
		"schema_version": "1.0", "id": uuid.Must(uuid.NewV7()), "type": kind,
		"time": time.Now().UTC(), "session_id": session, "workspace_id": "billing",
	}
	maps.Copy(fields, more)
	value, err := json.Marshal(fields)
	if err != nil {
		log.Fatal(err)
	}
	return kafka.Message{Key: []byte(session), Value: value}
}

func main() {
	session := "s-1"
	if len(os.Args) > 1 {
		session = os.Args[1]
	}
	writer := kafka.Writer{
		Addr:         kafka.TCP(strings.Split(cmp.Or(os.Getenv("TRUSTFOLD_BROKER"), "localhost:9092"), ",")...),
		Topic:        cmp.Or(os.Getenv("TRUSTFOLD_TOPIC_PREFIX"), "trustfold.") + "events",
		Balancer:     kafka.Murmur2Balancer{Consistent: true},
		RequiredAcks: kafka.RequireAll,
	}
	call := uuid.NewString()
	err := writer.WriteMessages(context.Background(),
		event(session, "tool_call.started", map[string]any{
			"call_id": call, "tool_name": "fetch_invoice", "args": map[string]any{"url": "https://invoices.example/7"},
		}),
		event(session, "tool_call.finished", map[string]any{
			"call_id": call, "tool_name": "fetch_invoice", "status": "error", "duration_ms": 120,
			"error": map[string]any{"message": "503 Service Unavailable", "http_status": 503},
		}))
	if err != nil {
		log.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		log.Fatal(err)
	}
}
