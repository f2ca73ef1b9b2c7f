package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"corelane/clients/suite"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pollFor is how long a member waits for records before it looks around.
const pollFor = 200 * time.Millisecond

// nextGen is the key by which franz-go lets a client opt in to KIP-848.
const nextGen = "opt_in_kafka_next_gen_balancer_beta"

// member is a group consumer; franz-go tells of its partitions by callbacks.
type member struct {
	client     *kgo.Client
	mutex      sync.Mutex
	partitions map[int32]bool
}

func (d *driver) Join(ctx context.Context, topic, group, protocol string) (suite.Member, error) {
	m := &member{partitions: make(map[int32]bool)}
	change := func(have bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			for _, partition := range changed[topic] {
				if have {
					m.partitions[partition] = true
				} else {
					delete(m.partitions, partition)
				}
			}
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(suite.FetchWait),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.SessionTimeout(suite.SessionTimeout),
		kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)),
	}
	switch protocol {
	case suite.Classic:
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case suite.Cooperative:
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case suite.NextGen:
		options = append(options, kgo.WithContext(context.WithValue(ctx, nextGen, true)))
	}
	client, err := d.client(options...)
	m.client = client
	return m, err
}

func (m *member) Poll(ctx context.Context) ([]*suite.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	fetches := m.client.PollFetches(ctx)
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

func (m *member) Assigned() []int32 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Collect(maps.Keys(m.partitions))
}

func (m *member) Commit(ctx context.Context) (bool, error) {
	err := m.client.CommitUncommittedOffsets(ctx)
	lost := []error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.StaleMemberEpoch}
	if slices.ContainsFunc(lost, func(known error) bool { return errors.Is(err, known) }) {
		return false, nil
	}
	return err == nil, err
}

func (m *member) Close() {
	m.client.Close()
}

func (d *driver) Committed(ctx context.Context, group, topic string) (map[int32]int64, error) {
	found, err := d.admin.FetchOffsets(ctx, group)
	committed := make(map[int32]int64)
	for partition, at := range found[topic] {
		committed[partition] = at.At
	}
	return committed, err
}

func (d *driver) ListGroups(ctx context.Context) ([]string, error) {
	groups, err := d.admin.ListGroups(ctx)
	return groups.Groups(), err
}

// DescribeGroup asks in the protocol that the list of groups names.
func (d *driver) DescribeGroup(ctx context.Context, group string) (string, int, error) {
	listed, err := d.admin.ListGroups(ctx)
	if err != nil {
		return "", 0, err
	}
	if listed[group].GroupType == "consumer" || listed[group].GroupType == "Consumer" {
		found, err := d.admin.DescribeConsumerGroups(ctx, group)
		if err == nil {
			err = found[group].Err
		}
		return found[group].State, len(found[group].Members), err
	}
	found, err := d.admin.DescribeGroups(ctx, group)
	if err == nil {
		err = found[group].Err
	}
	return found[group].State, len(found[group].Members), err
}

func (d *driver) DeleteGroup(ctx context.Context, group string) error {
	_, err := d.admin.DeleteGroup(ctx, group)
	return err
}
