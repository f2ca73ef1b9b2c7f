//! Topics: what requests are answered and where partitions go. Messages are what Apache Kafka 4.4.0
//! answered to the same requests, with Corelane's node ids.

#![allow(clippy::unwrap_used)]

mod support;

use meta::controller::{
    CreatePartitions, CreateTopic, CreatedTopic, DeleteTopic, PARTITIONS_PER_REQUEST_MAX, Restart,
};
use meta::{NodeId, Outcome};
use support::{Cluster, shown, table};
use wire::Uuid;

/// `name partitions factor key=value... [0:1,2 1:1]`; a quoted name may hold blanks.
fn create_request(text: &str) -> CreateTopic {
    let (text, assigned) = match text.split_once('[') {
        Some((before, rest)) => (before.trim(), rest.trim_end_matches(']')),
        None => (text, ""),
    };
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').unwrap(),
        None => text.split_once(' ').unwrap(),
    };
    let mut words = rest.split_whitespace();
    let num_partitions = words.next().unwrap().parse().unwrap();
    let replication_factor = words.next().unwrap().parse().unwrap();
    let configs = words.map(|pair| match pair.split_once('=') {
        Some((key, value)) => (key.to_string(), Some(value.to_string())),
        None => (pair.to_string(), None),
    });
    let assignments = assigned.split_whitespace().map(|item| {
        let (id, nodes) = item.split_once(':').unwrap();
        let nodes = nodes.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap());
        (id.parse().unwrap(), nodes.collect())
    });
    CreateTopic {
        name: name.replace("LONG", &"x".repeat(250)),
        num_partitions,
        replication_factor,
        configs: configs.collect(),
        assignments: assignments.collect(),
    }
}

fn create_answer(created: &Outcome<CreatedTopic>) -> String {
    match created {
        Ok(topic) => format!("ok {} {}", topic.num_partitions, topic.replication_factor),
        Err(failure) => shown(failure).replace(&"x".repeat(250), "LONG"),
    }
}

#[test]
fn create_topics_answers() {
    let mut cluster = Cluster::single(4, "num.partitions=3");
    cluster.create("exists", 2, 1);
    cluster.create("c.d_e", 1, 1);
    let cases = "
        a 1 1 => ok 1 1
        a -1 -1 => ok 3 1
        a 0 1 => INVALID_PARTITIONS Number of partitions was set to an invalid non-positive value.
        a -2 1 => INVALID_PARTITIONS Number of partitions was set to an invalid non-positive value.
        a 1 0 => INVALID_REPLICATION_FACTOR Replication factor must be larger than 0, or -1 to use the default value.
        a 1 -2 => INVALID_REPLICATION_FACTOR Replication factor must be larger than 0, or -1 to use the default value.
        # The factor counts brokers, not shards.
        a 1 2 => INVALID_REPLICATION_FACTOR Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because only 1 broker(s) are registered.
        a 10001 1 => POLICY_VIOLATION Excessively large number of partitions per request.
        a 10000 1 => ok 10000 1
        exists 2 1 => TOPIC_ALREADY_EXISTS Topic 'exists' already exists.
        \"\" 1 1 => INVALID_TOPIC_EXCEPTION Topic name is invalid: the empty string is not allowed
        . 1 1 => INVALID_TOPIC_EXCEPTION Topic name is invalid: '.' is not allowed
        .. 1 1 => INVALID_TOPIC_EXCEPTION Topic name is invalid: '..' is not allowed
        LONG 1 1 => INVALID_TOPIC_EXCEPTION Topic name is invalid: the length of 'LONG' is longer than the max allowed length 249
        \"a b\" 1 1 => INVALID_TOPIC_EXCEPTION Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'
        c_d.e 1 1 => INVALID_TOPIC_EXCEPTION Topic 'c_d.e' collides with existing topic: c.d_e
        __consumer_offsets 1 1 => ok 1 1
        __cluster_metadata 1 1 => INVALID_REQUEST Creation of internal topic __cluster_metadata is prohibited.
        a 1 1 retention.ms=5000 cleanup.policy=compact => ok 1 1
        a 1 1 cleanup.policy= => ok 1 1
        a 1 1 preallocate=TRUE => ok 1 1
        a 1 1 write.caching=true record.validation=strict => ok 1 1
        a 1 1 foo.bar=1 => INVALID_CONFIG Unknown topic config name: foo.bar
        a 1 1 retention.mss=1 => INVALID_CONFIG Unknown topic config name: retention.mss; did you mean retention.ms?
        a 1 1 retention.ms=abc => INVALID_CONFIG Invalid value abc for configuration retention.ms: Not a number of type LONG
        a 1 1 retention.ms=-5 => INVALID_CONFIG Invalid value -5 for configuration retention.ms: Value must be at least -1
        a 1 1 segment.bytes=1000 => INVALID_CONFIG Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576
        a 1 1 internal.segment.bytes=1000 => ok 1 1
        a 1 1 retention.ms => INVALID_CONFIG Null value not supported for topic configs: retention.ms
        a 1 1 min.compaction.lag.ms=100 max.compaction.lag.ms=10 => INVALID_CONFIG conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (10)
        a 1 1 remote.storage.enable=true => INVALID_CONFIG Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.
        a -1 -1 [0:1 1:3] => ok 2 1
        a -1 -1 [1:0 0:1] => ok 2 1
        a 1 -1 [0:1] => INVALID_REQUEST A manual partition assignment was specified, but numPartitions was not set to -1.
        a -1 1 [0:1] => INVALID_REQUEST A manual partition assignment was specified, but replication factor was not set to -1.
        a -1 -1 [0:1 2:1] => INVALID_REPLICA_ASSIGNMENT partitions should be a consecutive 0-based integer sequence
        a -1 -1 [1:1] => INVALID_REPLICA_ASSIGNMENT partitions should be a consecutive 0-based integer sequence
        a -1 -1 [0:1 0:2] => INVALID_REPLICA_ASSIGNMENT Found multiple manual partition assignments for partition 0
        a -1 -1 [0:1,1] => INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes the broker 1 more than once.
        a -1 -1 [0:9] => INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes broker 9, but no such broker is registered.
        a -1 -1 [0:-1] => INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes broker -1, but no such broker is registered.
        a -1 -1 [0:] => INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes an empty replica list.
        a -1 -1 [0:1,2] => INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes two replicas on the same host: broker 2 is a shard of a host that has one already.
    ";
    let before = cluster.image.clone();
    for (request, expected) in table(cases) {
        let request = [create_request(request)];
        for validate_only in [false, true] {
            let decision = {
                let mut n = 7;
                cluster.controller().create_topics(&request, validate_only, &mut || {
                    n += 1;
                    n
                })
            };
            let answer = create_answer(&decision.outcome[0].1);
            assert_eq!(answer, expected, "{request:?}");
            let creates = expected.starts_with("ok") && !validate_only;
            assert_eq!(!decision.records.is_empty(), creates, "{request:?}");
        }
    }
    assert_eq!(cluster.image, before);
}

#[test]
fn items_of_one_create_request_stand_or_fall_alone() {
    let mut cluster = Cluster::single(2, "");
    let names = ["a", "b", "a", "bad name", "x.y", "x_y"];
    let requests: Vec<_> = names.iter().map(|name| CreateTopic::with_defaults(*name)).collect();
    let outcome = cluster.decide(|c, entropy| c.create_topics(&requests, false, entropy));
    let answers: Vec<_> =
        outcome.iter().map(|(name, created)| (name.as_str(), create_answer(created))).collect();
    let expected = [
        ("a", "INVALID_REQUEST Duplicate topic name."),
        ("b", "ok 1 1"),
        (
            "bad name",
            "INVALID_TOPIC_EXCEPTION Topic name is invalid: 'bad name' contains one or more \
             characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        ("x.y", "ok 1 1"),
        ("x_y", "INVALID_TOPIC_EXCEPTION Topic 'x_y' collides with another topic of this request."),
    ];
    assert_eq!(answers, expected.map(|(name, answer)| (name, answer.to_string())));
    let names: Vec<_> = cluster.image.topics().map(|topic| topic.name.to_string()).collect();
    assert_eq!(names, ["b", "x.y"]);
}

#[test]
fn the_answer_tells_id_and_settings() {
    let mut cluster = Cluster::single(1, "log.retention.hours=1");
    let request = create_request("a 2 1 flush.messages=1");
    let outcome = cluster
        .decide(|c, entropy| c.create_topics(std::slice::from_ref(&request), false, entropy));
    let created = outcome[0].1.as_ref().unwrap();
    assert_eq!(cluster.image.topic_by_id(created.id).unwrap().name.as_ref(), "a");
    let value = |name: &str| {
        let entry = created.configs.iter().find(|entry| entry.key.name == name).unwrap();
        (entry.value.clone().unwrap(), entry.source.code())
    };
    assert_eq!(value("flush.messages"), ("1".into(), 1));
    assert_eq!(value("retention.ms"), ("3600000".into(), 4));
    assert_eq!(value("segment.bytes"), ("1073741824".into(), 5));
    assert_eq!(cluster.last_changes.created, [(created.id, 0), (created.id, 1)]);
    let partition = cluster.image.partition("a", 1).unwrap();
    assert_eq!((partition.leader_epoch, partition.partition_epoch), (0, 0));
    assert_eq!((partition.leader, &partition.isr[..]), (NodeId(0), &[NodeId(0)][..]));
}

#[test]
fn partitions_are_spread_evenly_over_the_shards() {
    let mut cluster = Cluster::single(4, "");
    cluster.create("even", 8, 1);
    assert_eq!(cluster.leaders("even"), [0, 1, 2, 3, 0, 1, 2, 3]);
    // Single partitions fill up what is least used.
    for at in 0..6 {
        cluster.create(&format!("one-{at}"), 1, 1);
    }
    let loads = |cluster: &Cluster| -> Vec<u32> {
        (0..4).map(|shard| cluster.image.load(NodeId(shard)).leaders).collect()
    };
    assert_eq!(loads(&cluster), [4, 4, 3, 3]);
    // A topic is even in itself, whatever the others left behind.
    for at in [0, 4] {
        delete(&mut cluster, &format!("one-{at}"));
    }
    delete(&mut cluster, "one-1");
    assert_eq!(loads(&cluster), [2, 3, 3, 3]);
    cluster.create("another", 4, 1);
    let mut leaders = cluster.leaders("another");
    assert_eq!(leaders[0], 0);
    leaders.sort_unstable();
    assert_eq!(leaders, [0, 1, 2, 3]);
    // New partitions of a topic count those that it has.
    let request = CreatePartitions { topic: "another".into(), count: 6, assignments: None };
    cluster.decide(|c, e| c.create_partitions(&[request], false, e))[0].1.clone().unwrap();
    assert_eq!(cluster.leaders("another").len(), 6);
    assert_eq!(loads(&cluster).iter().sum::<u32>(), 17);
    assert!(loads(&cluster).iter().all(|n| (4..=5).contains(n)), "{:?}", loads(&cluster));
}

#[test]
fn replicas_never_share_a_broker_and_prefer_other_racks() {
    let mut cluster = Cluster::empty("");
    for (broker, rack) in [(1, "a"), (2, "a"), (3, "b"), (4, "b")] {
        cluster.register(broker, 2, Some(rack), Restart::Clean);
    }
    cluster.create("t", 16, 2);
    let mut leaders = std::collections::BTreeMap::new();
    for replicas in cluster.replicas("t") {
        let brokers: Vec<i32> = replicas.iter().map(|node| NodeId(*node).broker()).collect();
        let rack = |broker: i32| (broker - 1) / 2;
        assert_ne!(rack(brokers[0]), rack(brokers[1]), "{replicas:?}");
        *leaders.entry(replicas[0]).or_insert(0) += 1;
    }
    assert_eq!(leaders.len(), 8);
    assert!(leaders.values().all(|n| *n == 2), "{leaders:?}");
    cluster.create("wide", 4, 4);
    for replicas in cluster.replicas("wide") {
        let mut brokers: Vec<i32> = replicas.iter().map(|node| NodeId(*node).broker()).collect();
        brokers.sort_unstable();
        assert_eq!(brokers, [1, 2, 3, 4]);
    }
}

#[test]
fn create_partitions_answers() {
    let mut cluster = Cluster::single(2, "");
    cluster.create("e1", 2, 1);
    let cases = "
        e1 1 => INVALID_PARTITIONS The topic e1 currently has 2 partition(s); 1 would not be an increase.
        e1 2 => INVALID_PARTITIONS Topic already has 2 partition(s).
        e1 0 => INVALID_PARTITIONS The topic e1 currently has 2 partition(s); 0 would not be an increase.
        e1 -3 => INVALID_PARTITIONS The topic e1 currently has 2 partition(s); -3 would not be an increase.
        nope 3 => UNKNOWN_TOPIC_OR_PARTITION This server does not host this topic-partition.
        e1 20000 => POLICY_VIOLATION Excessively large number of additional partitions per request.
        e1 4 1 => INVALID_REPLICA_ASSIGNMENT Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.
        e1 3 1 1 => INVALID_REPLICA_ASSIGNMENT Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.
        e1 3 7 => INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes broker 7, but no such broker is registered.
        e1 3 - => INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes an empty replica list.
        e1 3 => ok
        e1 4 1 1 => ok
    ";
    let before = cluster.image.clone();
    for (request, expected) in table(cases) {
        let mut words = request.split_whitespace();
        let (topic, count) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
        let assignments: Vec<Vec<i32>> =
            words.map(|w| if w == "-" { vec![] } else { vec![w.parse().unwrap()] }).collect();
        let request = CreatePartitions {
            topic: topic.into(),
            count,
            assignments: (!assignments.is_empty()).then_some(assignments),
        };
        let outcome =
            cluster.decide(|c, e| c.create_partitions(std::slice::from_ref(&request), true, e));
        let answer = outcome[0].1.as_ref().map_or_else(shown, |()| "ok".into());
        assert_eq!(answer, expected, "{request:?}");
    }
    assert_eq!(cluster.image, before, "validate-only changes nothing");
    let request = CreatePartitions {
        topic: "e1".into(),
        count: 4,
        assignments: Some(vec![vec![1], vec![1]]),
    };
    let id = cluster.image.topic_by_name("e1").unwrap().id;
    cluster.decide(|c, e| c.create_partitions(&[request], false, e))[0].1.clone().unwrap();
    assert_eq!(cluster.leaders("e1"), [0, 1, 1, 1]);
    assert_eq!(cluster.last_changes.created, [(id, 2), (id, 3)]);
}

#[test]
fn delete_topics_answers() {
    let mut cluster = Cluster::single(2, "");
    let a = cluster.create("a", 3, 1);
    let b = cluster.create("b", 1, 1);
    cluster.create("c", 1, 1);
    let name = |name: &str| DeleteTopic { name: Some(name.into()), id: Uuid::ZERO };
    let id = |id: Uuid| DeleteTopic { name: None, id };
    let requests = [
        name("a"),
        id(a),
        id(b),
        name("nope"),
        id(Uuid([9; 16])),
        id(Uuid::ZERO),
        DeleteTopic { name: Some("c".into()), id: a },
        name("c"),
        name("c"),
    ];
    let outcome = cluster.decide(|c, _| c.delete_topics(&requests));
    let answers: Vec<String> = outcome
        .iter()
        .map(|deleted| match deleted {
            Ok(topic) => format!("ok {}", topic.name),
            Err(failure) => shown(failure),
        })
        .collect();
    // The id of `a` stands twice in the request.
    assert_eq!(
        answers,
        [
            "ok a",
            "INVALID_REQUEST Duplicate topic id.",
            "ok b",
            "UNKNOWN_TOPIC_OR_PARTITION This server does not host this topic-partition.",
            "UNKNOWN_TOPIC_ID This server does not host this topic ID.",
            "INVALID_REQUEST Neither topic name nor id were specified.",
            "INVALID_REQUEST Duplicate topic name.",
            "INVALID_REQUEST Duplicate topic name.",
            "INVALID_REQUEST Duplicate topic name.",
        ]
    );
    let deleted: Vec<_> = cluster
        .last_changes
        .deleted
        .iter()
        .map(|topic| (topic.name.to_string(), topic.partitions.len()))
        .collect();
    assert_eq!(deleted, [("a".into(), 3), ("b".into(), 1)]);
    assert_eq!(cluster.image.topic_count(), 1);
    let both = DeleteTopic { name: Some("c".into()), id: Uuid([9; 16]) };
    let outcome = cluster.decide(|c, _| c.delete_topics(&[both]));
    assert_eq!(
        shown(outcome[0].as_ref().unwrap_err()),
        "INVALID_REQUEST You may not specify both topic name and topic id."
    );
    assert_ne!(cluster.create("a", 1, 1), a, "a new topic has a new id");
}

#[test]
fn deleting_can_be_forbidden() {
    let mut cluster = Cluster::single(1, "delete.topic.enable=false");
    cluster.create("a", 1, 1);
    let request = DeleteTopic { name: Some("a".into()), id: Uuid::ZERO };
    let outcome = cluster.decide(|c, _| c.delete_topics(&[request]));
    assert_eq!(
        shown(outcome[0].as_ref().unwrap_err()),
        "TOPIC_DELETION_DISABLED Topic deletion is disabled."
    );
    assert_eq!(cluster.image.topic_count(), 1);
}

#[test]
fn missing_topics_are_created_on_request() {
    let mut cluster = Cluster::single(2, "num.partitions=2\noffsets.topic.num.partitions=7");
    cluster.create("there", 1, 1);
    cluster.create("a.b", 1, 1);
    let names = ["new", "there", "a_b", "bad name", "__consumer_offsets", "new"];
    let outcome = cluster.decide(|c, entropy| c.auto_create(&names, entropy));
    let answers: Vec<_> = outcome
        .iter()
        .map(|(name, created)| format!("{name}: {}", create_answer(created)))
        .collect();
    assert_eq!(
        answers,
        [
            // The internal topic's factor of 3 is more than there are brokers.
            "__consumer_offsets: ok 7 1",
            "a_b: INVALID_TOPIC_EXCEPTION Topic 'a_b' collides with existing topic: a.b",
            "bad name: INVALID_TOPIC_EXCEPTION Topic name is invalid: 'bad name' contains one or more \
             characters other than ASCII alphanumerics, '.', '_' and '-'",
            "new: ok 2 1",
        ]
    );
    let resource = meta::config::Resource::topic("__consumer_offsets");
    let settings = cluster.image.configs(&resource).unwrap();
    assert_eq!(settings.get("cleanup.policy").map(String::as_str), Some("compact"));
}

#[test]
fn a_cluster_without_brokers_creates_nothing() {
    let mut cluster = Cluster::empty("");
    let request = [CreateTopic::with_defaults("a")];
    let outcome = cluster.decide(|c, entropy| c.create_topics(&request, false, entropy));
    assert_eq!(
        create_answer(&outcome[0].1),
        "INVALID_REPLICATION_FACTOR Unable to replicate the partition 1 time(s): All brokers are \
         currently fenced."
    );
}

#[test]
fn many_partitions_are_one_bounded_decision() {
    let mut cluster = Cluster::single(3, "");
    let most = PARTITIONS_PER_REQUEST_MAX as i32;
    cluster.create("big", most, 1);
    let loads: Vec<u32> = (0..3).map(|n| cluster.image.load(NodeId(n)).leaders).collect();
    assert_eq!(loads, [3334, 3333, 3333]);
}

fn delete(cluster: &mut Cluster, name: &str) {
    let request = DeleteTopic { name: Some(name.into()), id: Uuid::ZERO };
    cluster.decide(|c, _| c.delete_topics(&[request]))[0].clone().unwrap();
}
