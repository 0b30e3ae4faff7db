package recipe

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestWrittenAndRead(t *testing.T) {
	image := os.Getenv("KBROKER_IMAGE")
	if image == "" {
		image = "kbroker:8.4.0"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	container, err := kafka.Run(ctx, image)
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	brokers, err := container.Brokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic("greetings"), kgo.ConsumeTopics("greetings"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, kgo.StringRecord("hello")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fetches := client.PollFetches(ctx)
	if records := fetches.Records(); len(records) != 1 || string(records[0].Value) != "hello" {
		t.Fatal(records, fetches.Err())
	}
}
