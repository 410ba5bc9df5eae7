// Print what should be told to a model or to a person. A repeated record has the id of the first.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/segmentio/kafka-go"
)

type decision struct {
	ID, Type, Lane, Message, Key, To, Notification string
	Session                                        string `json:"session_id"`
	Silent                                         bool
}

func main() {
	prefix := cmp.Or(os.Getenv("TRUSTFOLD_TOPIC_PREFIX"), "trustfold.")
	group := "platform-follower"
	if len(os.Args) > 1 {
		group = os.Args[1]
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:     strings.Split(cmp.Or(os.Getenv("TRUSTFOLD_BROKER"), "localhost:9092"), ","),
		GroupID:     group,
		GroupTopics: []string{prefix + "nudges", prefix + "escalations"},
		StartOffset: kafka.FirstOffset,
	})
	seen := map[string]bool{} // bound it in a program that runs for long
	for {
		record, err := reader.ReadMessage(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		var told decision
		if err := json.Unmarshal(record.Value, &told); err != nil {
			log.Fatal(err)
		}
		switch {
		case seen[told.ID]:
		case told.Type == "nudge.issued":
			fmt.Printf("%s %s: %s\n", told.Session, told.Lane, told.Message)
		case told.Notification != "" && !told.Silent:
			fmt.Printf("%s %s: %s\n", told.Key, told.To, told.Notification)
		}
		seen[told.ID] = true
	}
}
