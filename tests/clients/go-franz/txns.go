package main

import (
	"context"
	"errors"
	"time"

	"corelane/clients/suite"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func transactional(id string, timeout time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

type transactor struct {
	client *kgo.Client
}

// Transactor initialises the id, which the client would do with the first record only.
func (d *driver) Transactor(ctx context.Context, id string, timeout time.Duration) (suite.Transactor, error) {
	client, err := d.client(transactional(id, timeout)...)
	if err != nil {
		return nil, err
	}
	_, _, err = client.ProducerID(ctx)
	return &transactor{client}, err
}

func (t *transactor) Begin() error { return t.client.BeginTransaction() }

func (t *transactor) Send(ctx context.Context, topic string, records []*suite.Record) error {
	return send(ctx, t.client, topic, records)
}

func send(ctx context.Context, client *kgo.Client, topic string, records []*suite.Record) error {
	var sent []*kgo.Record
	for _, r := range records {
		sent = append(sent, &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value})
	}
	return client.ProduceSync(ctx, sent...).FirstErr()
}

func (t *transactor) End(ctx context.Context, commit bool) error {
	return t.client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func (t *transactor) Close() { t.client.Close() }

func (d *driver) Fenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

type pipe struct {
	session *kgo.GroupTransactSession
}

// Pipe initialises the id at once: what another one has left open with it holds back the offsets that a
// member begins with, and the client by itself does so with the first record only.
func (d *driver) Pipe(ctx context.Context, source, group, id, instance string) (suite.Pipe, error) {
	options := append(transactional(id, time.Minute),
		kgo.SeedBrokers(d.bootstrap...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(suite.FetchWait),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.SessionTimeout(suite.SessionTimeout),
	)
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return nil, err
	}
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		session.Close()
		return nil, err
	}
	return &pipe{session}, nil
}

func (p *pipe) Poll(ctx context.Context) ([]*suite.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	fetches := p.session.PollRecords(ctx, suite.PipeRecords)
	var records []*suite.Record
	fetches.EachRecord(func(r *kgo.Record) {
		records = append(records, &suite.Record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value})
	})
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) && !errors.Is(failed.Err, context.Canceled) {
			return records, failed.Err
		}
	}
	return records, nil
}

func (p *pipe) Transact(ctx context.Context, sink string, records []*suite.Record, before func() bool) (bool, error) {
	if err := p.session.Begin(); err != nil {
		return false, err
	}
	if err := send(ctx, p.session.Client(), sink, records); err != nil {
		_, ended := p.session.End(ctx, kgo.TryAbort)
		return false, errors.Join(err, ended)
	}
	return p.session.End(ctx, kgo.TransactionEndTry(before()))
}

func (p *pipe) Close() { p.session.Close() }

func (d *driver) ConsumeCommitted(_ context.Context, topic string, starts map[int32]suite.Start) (suite.Consumer, error) {
	return d.consume(topic, starts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}
