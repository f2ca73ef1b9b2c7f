//! Changing configs: answers and effects. Messages are what Apache Kafka 4.4.0 answered to the same
//! requests; where Corelane differs on purpose, the line says so.

#![allow(clippy::unwrap_used)]

mod support;

use meta::config::{Resource, ResourceKind, TopicConfig, resolve_cluster_default};
use meta::controller::{AlterConfigs, ConfigOp, DeleteTopic, IncrementalAlter, OpKind};
use support::{Cluster, shown, table};
use wire::Uuid;

/// `kind:name op key=value; op key=value`; `key` without `=` is null. Ops: set, del, add, sub.
fn incremental(text: &str) -> IncrementalAlter {
    let (resource, ops) = text.split_once(' ').unwrap();
    let (kind, name) = resource.split_once(':').unwrap();
    let ops = ops.split(';').map(str::trim).map(|op| {
        let (kind, setting) = op.split_once(' ').unwrap();
        let kind = match kind {
            "set" => OpKind::Set,
            "del" => OpKind::Delete,
            "add" => OpKind::Append,
            "sub" => OpKind::Subtract,
            other => panic!("operation {other}"),
        };
        let (key, value) = match setting.split_once('=') {
            Some((key, value)) => (key, Some(value.to_string())),
            None => (setting, None),
        };
        ConfigOp { key: key.into(), kind, value }
    });
    IncrementalAlter {
        resource_type: type_code(kind),
        resource_name: name.into(),
        ops: ops.collect(),
    }
}

fn type_code(kind: &str) -> i8 {
    match kind {
        "topic" => 2,
        "broker" => 4,
        "logger" => 8,
        "metrics" => 16,
        "group" => 32,
        "odd" => 77,
        other => panic!("resource {other}"),
    }
}

fn alter(cluster: &mut Cluster, text: &str) -> String {
    let request = incremental(text);
    let outcome = cluster.decide(|c, _| c.incremental_alter_configs(&[request], false));
    outcome[0].as_ref().map_or_else(shown, |()| "ok".into())
}

#[test]
fn incremental_answers() {
    let cases = "
        topic:e1 set retention.ms=5 => ok
        topic:e1 set foo.bar=1 => INVALID_CONFIG Unknown topic config name: foo.bar
        topic:e1 del foo.bar => ok
        topic:e1 del flush.ms => ok
        topic:e1 set retention.ms=x => INVALID_CONFIG Invalid value x for configuration retention.ms: Not a number of type LONG
        topic:e1 add retention.ms=5 => INVALID_CONFIG Can't APPEND to key retention.ms because its type is not LIST.
        topic:e1 sub retention.ms=5 => INVALID_CONFIG Can't SUBTRACT to key retention.ms because its type is not LIST.
        topic:e1 add foo=x => INVALID_CONFIG Can't APPEND to key foo because its type is not LIST.
        topic:nope set retention.ms=5 => UNKNOWN_TOPIC_OR_PARTITION The topic 'nope' does not exist.
        topic: set retention.ms=5 => INVALID_REQUEST Default topic resources are not allowed.
        topic:e1 set retention.ms => INVALID_REQUEST Null value not supported for : retention.ms
        topic:e1 set retention.ms=5; set retention.ms=6 => INVALID_REQUEST Error due to duplicate config keys
        topic:e1 set cleanup.policy=delete; add cleanup.policy=compact => INVALID_REQUEST Error due to duplicate config keys
        topic:e1 add cleanup.policy=bad => INVALID_CONFIG Invalid value bad for configuration cleanup.policy: String must be one of: compact, delete
        topic:e1 add leader.replication.throttled.replicas=0:1,1:1 => ok
        topic:e1 set min.insync.replicas=0 => INVALID_CONFIG Invalid value 0 for configuration min.insync.replicas: Value must be at least 1
        topic:e1 set min.compaction.lag.ms=5; set max.compaction.lag.ms=1 => INVALID_CONFIG conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (1)
        broker: set log.retention.ms=123456 => ok
        broker:1 set log.retention.ms=6666666 => ok
        broker:1 set num.partitions=5 => INVALID_REQUEST Cannot update these configs dynamically: [num.partitions]
        broker: set num.partitions=5 => INVALID_REQUEST Cannot update these configs dynamically: [num.partitions]
        # Kafka moves its listeners at run time; Corelane does not and says so.
        broker:1 set listeners=PLAINTEXT://:1 => INVALID_REQUEST Cannot update these configs dynamically: [listeners]
        broker: set cordoned.log.dirs=/a => INVALID_REQUEST Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]
        broker:1 set cordoned.log.dirs=/a => ok
        broker: set log.retention.ms=abc => INVALID_REQUEST Invalid value abc for configuration log.retention.ms: Not a number of type LONG
        broker:1 set log.cleaner.min.cleanable.ratio=9 => INVALID_REQUEST Invalid value 9 for configuration log.cleaner.min.cleanable.ratio: Value must be no more than 1
        broker:1 set ssl.key.password=x => INVALID_REQUEST These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.key.password]
        broker:1 set listener.name.internal.ssl.key.password=x => ok
        # Kafka answers UNKNOWN_SERVER_ERROR.
        broker:abc set log.retention.ms=5 => INVALID_REQUEST Node id must be an integer, but it is: abc
        broker:77 set log.retention.ms=5 => BROKER_ID_NOT_REGISTERED No broker with id 77 found.
        # Kafka stores unknown broker keys without a word.
        broker:1 set foo.bar=1 => INVALID_CONFIG Unknown broker config name: foo.bar
        broker:1 set retention.ms=5 => INVALID_CONFIG Unknown broker config name: retention.ms; did you mean log.retention.ms?
        broker:1 del foo.bar => ok
        group:g1 set consumer.session.timeout.ms=50000 => ok
        group:g1 set consumer.session.timeout.ms=1 => INVALID_CONFIG consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.
        group:g1 set streams.num.standby.replicas=3 => INVALID_CONFIG streams.num.standby.replicas must be at most 2.
        group:g1 set foo=1 => INVALID_CONFIG Unknown group config name: foo
        group: set consumer.session.timeout.ms=50000 => INVALID_REQUEST Default group resources are not allowed.
        metrics:m1 set interval.ms=60000; set match=client_id=abc => ok
        metrics:m1 set interval.ms=1 => INVALID_REQUEST Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)
        metrics:m1 set match=foo=bar => INVALID_CONFIG Illegal client matching pattern: foo=bar
        metrics:m1 set foo=bar => INVALID_REQUEST Unknown client metrics configuration: foo
        metrics: set interval.ms=60000 => INVALID_REQUEST Default client metrics resources are not allowed.
        logger:1 set root=INFO => INVALID_REQUEST Log levels cannot be changed while the broker runs.
        odd:x set a=b => INVALID_REQUEST Unsupported resource type 77.
    ";
    for (request, expected) in table(cases) {
        let mut cluster = Cluster::single(2, "");
        cluster.create("e1", 2, 1);
        let before = cluster.image.clone();
        let validated =
            cluster.decide(|c, _| c.incremental_alter_configs(&[incremental(request)], true));
        let answer = validated[0].as_ref().map_or_else(shown, |()| "ok".into());
        assert_eq!(answer, expected, "{request}");
        assert_eq!(cluster.image, before, "validate-only changed something: {request}");
        assert_eq!(alter(&mut cluster, request), expected, "{request}");
        if expected != "ok" {
            assert_eq!(cluster.image, before, "a refused change left something: {request}");
        }
    }
}

#[test]
fn lists_grow_and_shrink_from_what_they_inherit() {
    let mut cluster = Cluster::single(1, "");
    cluster.create("e1", 1, 1);
    let steps = "
        topic:e1 add cleanup.policy=compact => delete,compact
        topic:e1 add cleanup.policy=compact => delete,compact
        topic:e1 sub cleanup.policy=delete => compact
        topic:e1 sub cleanup.policy=compact =>
        topic:e1 del cleanup.policy => -
        topic:e1 add leader.replication.throttled.replicas=0:1 => -
    ";
    for (step, expected) in steps.lines().filter_map(|line| line.trim().split_once(" =>")) {
        assert_eq!(alter(&mut cluster, step), "ok", "{step}");
        let settings = cluster.image.configs(&Resource::topic("e1"));
        let policy = settings.and_then(|s| s.get("cleanup.policy")).map_or("-", String::as_str);
        assert_eq!(policy, expected.trim(), "{step}");
    }
    assert_eq!(cluster.last_changes.configs, [Resource::topic("e1")]);
}

#[test]
fn altering_replaces_the_whole_set() {
    let mut cluster = Cluster::single(1, "");
    cluster.create("t", 1, 1);
    let replace = |cluster: &mut Cluster, configs: &[(&str, Option<&str>)]| {
        let request = AlterConfigs {
            resource_type: 2,
            resource_name: "t".into(),
            configs: configs.iter().map(|(k, v)| (k.to_string(), v.map(String::from))).collect(),
        };
        let outcome = cluster.decide(|c, _| c.alter_configs(&[request], false));
        outcome[0].as_ref().map_or_else(shown, |()| "ok".into())
    };
    let settings = |cluster: &Cluster| -> Vec<String> {
        let settings = cluster.image.configs(&Resource::topic("t"));
        settings.into_iter().flatten().map(|(k, v)| format!("{k}={v}")).collect()
    };
    let both = [("retention.ms", Some("5")), ("flush.messages", Some("1"))];
    assert_eq!(replace(&mut cluster, &both), "ok");
    assert_eq!(settings(&cluster), ["flush.messages=1", "retention.ms=5"]);
    assert_eq!(replace(&mut cluster, &[("retention.ms", Some("6"))]), "ok");
    assert_eq!(settings(&cluster), ["retention.ms=6"]);
    assert_eq!(
        replace(&mut cluster, &[("flush.ms", Some("1")), ("retention.ms", Some("x"))]),
        "INVALID_CONFIG Invalid value x for configuration retention.ms: Not a number of type LONG"
    );
    assert_eq!(
        replace(&mut cluster, &[("flush.ms", None)]),
        "INVALID_REQUEST Null value not supported for : flush.ms"
    );
    assert_eq!(
        replace(&mut cluster, &[("flush.ms", Some("1")), ("flush.ms", Some("2"))]),
        "INVALID_REQUEST Error due to duplicate config keys"
    );
    assert_eq!(settings(&cluster), ["retention.ms=6"]);
    assert_eq!(replace(&mut cluster, &[]), "ok");
    assert_eq!(settings(&cluster), [""; 0]);
}

#[test]
fn a_resource_may_stand_once_in_a_request() {
    let mut cluster = Cluster::single(1, "");
    cluster.create("t", 1, 1);
    cluster.create("u", 1, 1);
    let requests =
        ["topic:t set retention.ms=1", "topic:u set retention.ms=2", "topic:t set flush.ms=3"];
    let requests = requests.map(incremental);
    let outcome = cluster.decide(|c, _| c.incremental_alter_configs(&requests, false));
    let answers: Vec<String> =
        outcome.iter().map(|o| o.as_ref().map_or_else(shown, |()| "ok".into())).collect();
    let twice = "INVALID_REQUEST Each resource must appear at most once.";
    assert_eq!(answers, [twice, "ok", twice]);
    assert_eq!(cluster.image.overrides().names(ResourceKind::Topic), ["u"]);
}

#[test]
fn settings_reach_the_typed_configs_and_go_with_their_topic() {
    let mut cluster = Cluster::single(2, "log.retention.ms=10");
    cluster.create("t", 1, 1);
    let retention = |cluster: &Cluster, node: i32| {
        let layers = cluster.image.layers(&cluster.fixed, meta::NodeId(node));
        TopicConfig::resolve(layers, "t").retention_ms
    };
    assert_eq!(retention(&cluster, 0), 10);
    alter(&mut cluster, "broker: set log.retention.ms=20");
    assert_eq!((retention(&cluster, 0), retention(&cluster, 1)), (20, 20));
    alter(&mut cluster, "broker:1 set log.retention.ms=30");
    assert_eq!((retention(&cluster, 0), retention(&cluster, 1)), (20, 30));
    let defaults = resolve_cluster_default(cluster.image.overrides());
    let defaults: Vec<_> =
        defaults.iter().map(|e| (e.key.name, e.value.as_deref(), e.source.code())).collect();
    assert_eq!(defaults, [("log.retention.ms", Some("20"), 3)]);
    alter(&mut cluster, "topic:t set retention.ms=40");
    assert_eq!(retention(&cluster, 1), 40);
    let request = DeleteTopic { name: Some("t".into()), id: Uuid::ZERO };
    cluster.decide(|c, _| c.delete_topics(&[request]));
    cluster.create("t", 1, 1);
    assert_eq!(retention(&cluster, 1), 30, "a new topic does not inherit an old one's settings");
}

#[test]
fn values_have_a_bound() {
    let mut cluster = Cluster::single(1, "");
    cluster.create("t", 1, 1);
    let long = "0:1,".repeat(10_000);
    let request = format!("topic:t set leader.replication.throttled.replicas={long}0:1");
    assert_eq!(
        alter(&mut cluster, &request),
        "INVALID_CONFIG The configuration value cannot be added because it exceeds the maximum value \
         size of 32767 bytes."
    );
}
