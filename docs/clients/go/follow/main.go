// Print what a model or a person should be told: follow BROKER GROUP trustfold.nudges trustfold.escalations
package main

import (
	"context"
	"encoding/json"
	"github.com/segmentio/kafka-go"
	"log"
	"os"
)

func main() {
	from := kafka.ReaderConfig{Brokers: os.Args[1:2], GroupID: os.Args[2], GroupTopics: os.Args[3:], StartOffset: kafka.FirstOffset}
	reader, seen := kafka.NewReader(from), map[string]bool{} // bound what is seen in a program that runs for long
	for {
		record, err := reader.ReadMessage(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		var told struct {
			ID, Type, Message, Notification string
			Silent                          bool
		}
		if json.Unmarshal(record.Value, &told) != nil || told.Silent || told.Message+told.Notification == "" || seen[told.ID] {
			continue // unreadable, not to be told, or repeated
		}
		seen[told.ID] = true
		log.Printf("%q %s: %s", record.Key, told.Type, told.Message+told.Notification)
	}
}
