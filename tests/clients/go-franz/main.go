// go-franz runs the client scenarios with franz-go and its kadm admin package. It owns the mapping
// from suite.Driver to franz-go; the scenarios live in ../go-suite.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"corelane/clients/suite"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	suite.Main("go-franz", []string{suite.Classic, suite.Cooperative, suite.NextGen}, open)
}

type driver struct {
	bootstrap []string
	raw       *kgo.Client
	admin     *kadm.Client  // speaks through raw and closes it
	producers []*kgo.Client // open until Close: a record sent without acks may still be on its way
}

func open(bootstrap []string) (suite.Driver, error) {
	d := &driver{bootstrap: bootstrap}
	client, err := d.client()
	if err != nil {
		return nil, err
	}
	d.raw, d.admin = client, kadm.NewClient(client)
	return d, nil
}

func (d *driver) Close() {
	d.admin.Close()
	for _, p := range d.producers {
		p.Close()
	}
}

func (d *driver) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(d.bootstrap...),
		kgo.MetadataMinAge(100 * time.Millisecond), // unknown-topic waits for several refreshes
	}, options...)...)
}

func (d *driver) Code(err error) int16 {
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return e.Code
	}
	return -1
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"} // by their number in the attributes

func (d *driver) Produce(ctx context.Context, topic string, o suite.ProducerOptions,
	records []*suite.Record) []error {
	outcomes := make([]error, len(records))
	options := []kgo.Opt{
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[o.Codec]),
		kgo.UnknownTopicRetries(2),
		kgo.RequiredAcks(map[int16]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}[o.Acks]),
	}
	if !o.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	if o.SmallBatch {
		options = append(options, kgo.ProducerBatchMaxBytes(2_000))
	}
	client, err := d.client(options...)
	if err != nil {
		for i := range outcomes {
			outcomes[i] = err
		}
		return outcomes
	}
	d.producers = append(d.producers, client)
	for i, record := range records {
		sent := &kgo.Record{Partition: record.Partition, Key: record.Key, Value: record.Value,
			Timestamp: record.Timestamp}
		for _, h := range record.Headers {
			sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		client.Produce(ctx, sent, func(done *kgo.Record, err error) {
			record.Offset, outcomes[i] = done.Offset, err
		})
		if o.OneByOne {
			client.Flush(ctx)
		}
	}
	if err := client.Flush(ctx); err != nil {
		outcomes[0] = err
	}
	return outcomes
}

type consumer struct {
	topic   string
	client  *kgo.Client
	fetches atomic.Int64
}

// OnBrokerWrite is franz-go's hook for each request it writes.
func (c *consumer) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	const fetch = 1
	if key == fetch {
		c.fetches.Add(1)
	}
}

var _ kgo.HookBrokerWrite = (*consumer)(nil)

func (d *driver) Consume(_ context.Context, topic string, starts map[int32]suite.Start) (suite.Consumer, error) {
	return d.consume(topic, starts)
}

func (d *driver) consume(topic string, starts map[int32]suite.Start, more ...kgo.Opt) (suite.Consumer, error) {
	offsets := make(map[int32]kgo.Offset)
	for partition, start := range starts {
		offset := kgo.NewOffset()
		switch start.Kind {
		case suite.FromEarliest:
			offset = offset.AtStart()
		case suite.FromLatest:
			offset = offset.AtEnd()
		case suite.FromOffset:
			offset = offset.At(start.Offset)
		case suite.FromTime:
			offset = offset.AfterMilli(start.Time.UnixMilli())
		}
		offsets[partition] = offset
	}
	c := &consumer{topic: topic}
	client, err := d.client(append(more,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchMaxWait(suite.FetchWait),
		kgo.KeepRetryableFetchErrors(), // report an unknown topic, do not wait for it
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.WithHooks(c),
	)...)
	c.client = client
	return c, err
}

func (c *consumer) Next(ctx context.Context) ([]*suite.Record, error) {
	var records []*suite.Record
	for len(records) == 0 {
		fetches := c.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			record := &suite.Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
				Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				record.Headers = append(record.Headers, suite.Header{Key: h.Key, Value: h.Value})
			}
			records = append(records, record)
		})
	}
	return records, nil
}

func (c *consumer) Seek(_ context.Context, partition int32, offset int64) error {
	c.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{
		c.topic: {partition: {Epoch: -1, Offset: offset}}})
	return nil
}

func (c *consumer) Fetches() int64 { return c.fetches.Load() }
func (c *consumer) Close()         { c.client.Close() }

func (d *driver) StoredBatch(ctx context.Context, topic string, partition int32) (suite.Batch, error) {
	client, err := d.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return suite.Batch{}, err
	}
	defer client.Close()
	fetches := client.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		return suite.Batch{}, err
	}
	first := fetches.Records()[0]
	return suite.Batch{Codec: codecNames[first.Attrs.CompressionType()], ProducerID: first.ProducerID}, nil
}

func (d *driver) CreateTopic(ctx context.Context, topic string, partitions int32,
	configs map[string]string) error {
	values := make(map[string]*string)
	for key, value := range configs {
		values[key] = &value
	}
	const brokerDefault = -1
	_, err := d.admin.CreateTopic(ctx, partitions, brokerDefault, values, topic)
	return err
}

func (d *driver) DeleteTopic(ctx context.Context, topic string) error {
	_, err := d.admin.DeleteTopic(ctx, topic)
	return err
}

func (d *driver) ListTopics(ctx context.Context) ([]string, error) {
	topics, err := d.admin.ListTopics(ctx)
	return topics.Names(), err
}

func (d *driver) DescribeTopic(ctx context.Context, topic string) ([]suite.Partition, error) {
	topics, err := d.admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := topics[topic].Err; err != nil {
		return nil, err
	}
	var partitions []suite.Partition
	for _, p := range topics[topic].Partitions {
		if p.Err != nil {
			return nil, p.Err
		}
		partitions = append(partitions, suite.Partition{ID: p.Partition, Leader: p.Leader,
			Replicas: p.Replicas, ISR: p.ISR})
	}
	return partitions, nil
}

func listed(offsets kadm.ListedOffsets, err error, topic string, partition int32) (int64, error) {
	if err != nil {
		return 0, err
	}
	o, ok := offsets.Lookup(topic, partition)
	if !ok {
		return 0, fmt.Errorf("the answer lacks %s/%d", topic, partition)
	}
	return o.Offset, o.Err
}

func (d *driver) Offsets(ctx context.Context, topic string, partition int32) (int64, int64, error) {
	all, err := d.admin.ListStartOffsets(ctx, topic)
	earliest, err := listed(all, err, topic, partition)
	if err != nil {
		return 0, 0, err
	}
	all, err = d.admin.ListEndOffsets(ctx, topic)
	latest, err := listed(all, err, topic, partition)
	return earliest, latest, err
}

func (d *driver) OffsetAfter(ctx context.Context, topic string, partition int32, at time.Time) (int64, error) {
	all, err := d.admin.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topic)
	if o, ok := all.Lookup(topic, partition); ok && o.Err == nil && o.Timestamp < 0 {
		return suite.NoOffset, err // kadm gives the end offset instead
	}
	return listed(all, err, topic, partition)
}

// DescribeCluster asks by its own request, which kadm does not wrap: kadm would ask for metadata.
func (d *driver) DescribeCluster(ctx context.Context) (suite.Cluster, error) {
	answer, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, d.raw)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		return suite.Cluster{}, err
	}
	cluster := suite.Cluster{ID: answer.ClusterID, Controller: answer.ControllerID}
	for _, b := range answer.Brokers {
		if b.Host == "" || b.Port == 0 {
			return cluster, fmt.Errorf("broker %d has no address", b.NodeID)
		}
		cluster.Brokers = append(cluster.Brokers, b.NodeID)
	}
	return cluster, nil
}

func (d *driver) DescribeConfig(ctx context.Context, topic, key string) (suite.Config, error) {
	all, err := d.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return suite.Config{}, err
	}
	resource, err := all.On(topic, nil)
	if err = errors.Join(err, resource.Err); err != nil {
		return suite.Config{}, err
	}
	for _, c := range resource.Configs {
		if c.Key == key {
			return suite.Config{Value: c.MaybeValue(), IsDefault: c.Source.String() == "DEFAULT_CONFIG"}, nil
		}
	}
	return suite.Config{}, fmt.Errorf("no config %s among %d", key, len(resource.Configs))
}

func (d *driver) AlterConfig(ctx context.Context, topic, key string, value *string) error {
	alter := kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: value}
	if value == nil {
		alter.Op = kadm.DeleteConfig
	}
	answers, err := d.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{alter}, topic)
	if err != nil {
		return err
	}
	answer, err := answers.On(topic, nil)
	return errors.Join(err, answer.Err)
}

func (d *driver) CreatePartitions(ctx context.Context, topic string, count int32) error {
	answers, err := d.admin.UpdatePartitions(ctx, int(count), topic)
	if err != nil {
		return err
	}
	answer, err := answers.On(topic, nil)
	return errors.Join(err, answer.Err)
}

func (d *driver) DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error {
	offsets := make(kadm.Offsets)
	offsets.AddOffset(topic, partition, before, -1)
	answers, err := d.admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return err
	}
	answer, err := answers.On(topic, partition, nil)
	return errors.Join(err, answer.Err)
}

func (d *driver) LogDirBytes(ctx context.Context, topic string) (int64, error) {
	everything := kadm.TopicsSet(nil)
	brokers, err := d.admin.DescribeAllLogDirs(ctx, everything)
	if err != nil {
		return 0, err
	}
	var bytes int64
	for _, dirs := range brokers {
		if err := dirs.Error(); err != nil {
			return 0, err
		}
		dirs.EachPartition(func(p kadm.DescribedLogDirPartition) {
			if p.Topic == topic {
				bytes += p.Size
			}
		})
	}
	return bytes, nil
}
