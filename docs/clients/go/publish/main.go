// Publish one failed call: publish BROKER trustfold.events SESSION
package main

import (
	"context"
	"encoding/json"
	"log"
	"maps"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
)

func main() {
	session, call := os.Args[3], uuid.NewString()
	event := func(kind string, fields map[string]any) kafka.Message {
		maps.Copy(fields, map[string]any{
			"schema_version": "1.0", "id": uuid.Must(uuid.NewV7()), "type": kind, "time": time.Now().UTC(),
			"session_id": session, "workspace_id": "billing", "call_id": call, "tool_name": "fetch_invoice",
		})
		value, err := json.Marshal(fields)
		if err != nil {
			log.Fatal(err)
		}
		return kafka.Message{Key: []byte(session), Value: value}
	}
	// The balancer must be Java's (murmur2), so that all publishers agree on a session's partition.
	writer := kafka.Writer{
		Addr: kafka.TCP(os.Args[1]), Topic: os.Args[2], Balancer: kafka.Murmur2Balancer{Consistent: true}, RequiredAcks: kafka.RequireAll,
	}
	err := writer.WriteMessages(context.Background(),
		event("tool_call.started", map[string]any{"args": map[string]any{"url": "https://invoices.example/7"}}),
		event("tool_call.finished", map[string]any{
			"status": "error", "duration_ms": 120, "error": map[string]any{"message": "503 Service Unavailable", "http_status": 503},
		}))
	if err != nil {
		log.Fatal(err)
	}
}
