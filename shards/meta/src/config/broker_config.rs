//! The settings of a broker as numbers and switches: every broker key that Corelane honours and
//! that is not just the default of a topic key.

use std::borrow::Cow;

use super::error::ConfigError;
use super::key::{Key, Scope};
use super::keys;
use super::overrides::Overrides;
use super::resolve::Layers;
use super::static_config::StaticConfig;
use super::topic_config::TopicConfig;
use super::value::{boolean, list, number};

/// An address as `listeners` writes it: `NAME://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    /// Empty: every address of the host.
    pub host: String,
    pub port: u16,
}

/// Times are in ms, sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerConfig {
    pub broker_id: i32,
    /// Of the whole process; 0: one for each usable core.
    pub shards: u32,
    /// Of the whole process; 0: a share of the machine's memory.
    pub memory_bytes: u64,
    pub rack: Option<String>,
    pub admin_host: String,
    /// Of metrics and health; -1: behind the shards' ports; 0: none.
    pub admin_port: i32,
    pub listeners: Vec<Listener>,
    /// Empty: as `listeners`.
    pub advertised_listeners: Vec<Listener>,
    pub log_dirs: Vec<String>,
    pub socket_request_max_bytes: usize,
    pub socket_listen_backlog: u32,
    pub max_connections: u32,
    pub max_connections_per_ip: u32,
    pub connections_max_idle_ms: i64,
    pub max_request_partition_size_limit: u32,
    pub auto_create_topics: bool,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub delete_topics: bool,
    pub log_retention_check_interval_ms: i64,
    pub log_flush_offset_checkpoint_interval_ms: i64,
    pub log_flush_start_offset_checkpoint_interval_ms: i64,
    pub fetch_max_bytes: u32,
    pub replica_alter_log_dirs_io_max_bytes_per_second: i64,
    pub fetch_session_slots: u32,
    pub producer_id_expiration_ms: i64,
    /// Bytes of metadata records after which a snapshot is written.
    pub metadata_snapshot_bytes: u64,
    pub log_cleaner_enable: bool,
    pub log_cleaner_backoff_ms: i64,
    /// For the maps of keys, over all shards.
    pub log_cleaner_dedupe_buffer_bytes: u64,
    pub log_cleaner_load_factor: f64,
    /// Over all shards.
    pub log_cleaner_io_max_bytes_per_second: f64,
    pub groups: GroupsConfig,
    pub transactions: TransactionsConfig,
    /// What a topic without overrides gets.
    pub topic_defaults: TopicConfig,
}

/// What transactions obey. Times are in ms.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionsConfig {
    pub timeout_max_ms: i32,
    pub id_expiration_ms: i64,
    pub expiry_check_interval_ms: i64,
    /// Read at a time while a coordinator is loaded.
    pub load_buffer_bytes: u32,
    /// Whether a leader asks the coordinator before a transaction writes to a partition.
    pub verify_partitions: bool,
    /// How long a leader waits before it asks again about a transaction that is just ending, and
    /// for how long it asks.
    pub retry_backoff_ms: u32,
    pub retry_backoff_max_ms: u32,
}

/// What consumer groups obey. Times are in ms.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupsConfig {
    pub session_timeout_min_ms: i32,
    pub session_timeout_max_ms: i32,
    pub initial_rebalance_delay_ms: i32,
    /// Members of a classic group.
    pub classic_members_max: u32,
    /// UTF-16 units.
    pub offset_metadata_max: u32,
    pub offsets_retention_ms: i64,
    pub offsets_check_interval_ms: i64,
    /// Read at a time while a coordinator is loaded.
    pub load_buffer_bytes: u32,
    /// Whether the KIP-848 protocol is offered.
    pub consumer_protocol: bool,
    pub consumer_session_timeout_ms: i32,
    pub consumer_heartbeat_interval_ms: i32,
    pub consumer_members_max: u32,
    /// Names of the assignors on offer.
    pub assignors: Vec<String>,
    pub assignment_interval_ms: i32,
    pub regex_refresh_interval_ms: i64,
    pub migration_policy: String,
}

impl BrokerConfig {
    /// The settings at the start, before anything dynamic is known.
    pub fn from_static(fixed: &StaticConfig) -> Result<Self, ConfigError> {
        BrokerConfig::resolve(Layers { dynamic: &Overrides::default(), fixed, node: -1 })
    }

    /// The settings as a node sees them now.
    pub fn resolve(layers: Layers<'_>) -> Result<Self, ConfigError> {
        let r = Reader { layers };
        Ok(BrokerConfig {
            broker_id: r.broker_id()?,
            shards: r.number("shards")?,
            memory_bytes: r.number("memory.bytes")?,
            rack: r.text("broker.rack").filter(|rack| !rack.is_empty()).map(Cow::into_owned),
            admin_host: r.text("admin.host").unwrap_or_default().into_owned(),
            admin_port: r.number("admin.port")?,
            listeners: r.listeners()?,
            advertised_listeners: r.advertised()?,
            log_dirs: r.log_dirs()?,
            socket_request_max_bytes: r.number("socket.request.max.bytes")?,
            socket_listen_backlog: r.number("socket.listen.backlog.size")?,
            max_connections: r.number("max.connections")?,
            max_connections_per_ip: r.number("max.connections.per.ip")?,
            connections_max_idle_ms: r.number("connections.max.idle.ms")?,
            max_request_partition_size_limit: r.number("max.request.partition.size.limit")?,
            auto_create_topics: r.switch("auto.create.topics.enable")?,
            num_partitions: r.number("num.partitions")?,
            default_replication_factor: r.number("default.replication.factor")?,
            delete_topics: r.switch("delete.topic.enable")?,
            log_retention_check_interval_ms: r.number("log.retention.check.interval.ms")?,
            log_flush_offset_checkpoint_interval_ms: r
                .number("log.flush.offset.checkpoint.interval.ms")?,
            log_flush_start_offset_checkpoint_interval_ms: r
                .number("log.flush.start.offset.checkpoint.interval.ms")?,
            fetch_max_bytes: r.number("fetch.max.bytes")?,
            replica_alter_log_dirs_io_max_bytes_per_second: r
                .number("replica.alter.log.dirs.io.max.bytes.per.second")?,
            fetch_session_slots: r.number("max.incremental.fetch.session.cache.slots")?,
            producer_id_expiration_ms: r.number("producer.id.expiration.ms")?,
            metadata_snapshot_bytes: r.number("metadata.log.max.record.bytes.between.snapshots")?,
            log_cleaner_enable: r.switch("log.cleaner.enable")?,
            log_cleaner_backoff_ms: r.number("log.cleaner.backoff.ms")?,
            log_cleaner_dedupe_buffer_bytes: r.number("log.cleaner.dedupe.buffer.size")?,
            log_cleaner_load_factor: r.real("log.cleaner.io.buffer.load.factor")?,
            log_cleaner_io_max_bytes_per_second: r.real("log.cleaner.io.max.bytes.per.second")?,
            groups: r.groups()?,
            transactions: r.transactions()?,
            topic_defaults: TopicConfig::defaults(layers),
        })
    }
}

/// Built-in defaults.
impl Default for BrokerConfig {
    fn default() -> Self {
        match BrokerConfig::from_static(&StaticConfig::default()) {
            Ok(config) => config,
            // The registry's own defaults; a test reads them.
            Err(error) => unreachable!("built-in defaults: {error}"),
        }
    }
}

struct Reader<'a> {
    layers: Layers<'a>,
}

impl<'a> Reader<'a> {
    fn groups(&self) -> Result<GroupsConfig, ConfigError> {
        let offered = self.text("group.coordinator.rebalance.protocols").unwrap_or_default();
        let assignors = self.text("group.consumer.assignors").unwrap_or_default();
        Ok(GroupsConfig {
            session_timeout_min_ms: self.number("group.min.session.timeout.ms")?,
            session_timeout_max_ms: self.number("group.max.session.timeout.ms")?,
            initial_rebalance_delay_ms: self.number("group.initial.rebalance.delay.ms")?,
            classic_members_max: self.number("group.max.size")?,
            offset_metadata_max: self.number("offset.metadata.max.bytes")?,
            offsets_retention_ms: self.number::<i64>("offsets.retention.minutes")? * 60_000,
            offsets_check_interval_ms: self.number("offsets.retention.check.interval.ms")?,
            load_buffer_bytes: self.number("offsets.load.buffer.size")?,
            consumer_protocol: list(&offered).contains(&"consumer"),
            consumer_session_timeout_ms: self.number("group.consumer.session.timeout.ms")?,
            consumer_heartbeat_interval_ms: self.number("group.consumer.heartbeat.interval.ms")?,
            consumer_members_max: self.number("group.consumer.max.size")?,
            assignors: list(&assignors).into_iter().map(String::from).collect(),
            assignment_interval_ms: self.number("group.consumer.assignment.interval.ms")?,
            regex_refresh_interval_ms: self.number("group.consumer.regex.refresh.interval.ms")?,
            migration_policy: self
                .text("group.consumer.migration.policy")
                .unwrap_or_default()
                .into_owned(),
        })
    }

    fn transactions(&self) -> Result<TransactionsConfig, ConfigError> {
        Ok(TransactionsConfig {
            timeout_max_ms: self.number("transaction.max.timeout.ms")?,
            id_expiration_ms: self.number("transactional.id.expiration.ms")?,
            expiry_check_interval_ms: self
                .number("transaction.remove.expired.transaction.cleanup.interval.ms")?,
            load_buffer_bytes: self.number("transaction.state.log.load.buffer.size")?,
            verify_partitions: self.switch("transaction.partition.verification.enable")?,
            retry_backoff_ms: self.number("add.partitions.to.txn.retry.backoff.ms")?,
            retry_backoff_max_ms: self.number("add.partitions.to.txn.retry.backoff.max.ms")?,
        })
    }

    fn key(name: &str) -> Result<&'static Key, ConfigError> {
        keys::find(Scope::Broker, name)
            .ok_or_else(|| ConfigError::UnknownKey { name: name.into(), meant: None })
    }

    fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.layers.broker_value(Self::key(name).ok()?)
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T, ConfigError> {
        let key = Self::key(name)?;
        let text = self.layers.broker_value(key).unwrap_or_default();
        let value = number(key.kind, &text).and_then(|n| T::try_from(n).ok());
        value.ok_or_else(|| ConfigError::invalid(name, text, "the number is out of range"))
    }

    fn real(&self, name: &str) -> Result<f64, ConfigError> {
        let text = self.text(name).unwrap_or_default();
        let value = text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        value.ok_or_else(|| ConfigError::invalid(name, text, "it must be a number"))
    }

    fn switch(&self, name: &str) -> Result<bool, ConfigError> {
        let text = self.text(name).unwrap_or_default();
        boolean(&text).ok_or_else(|| {
            ConfigError::invalid(name, text, "Expected value to be either true or false")
        })
    }

    fn broker_id(&self) -> Result<i32, ConfigError> {
        let fixed = self.layers.fixed;
        // -1 in old files means: not given here.
        let broker = fixed.value("broker.id").filter(|id| *id != "-1");
        if let (Some(node), Some(broker)) = (fixed.value("node.id"), broker)
            && node != broker
        {
            return Err(ConfigError::Conflict(format!(
                "node.id is {node} and broker.id is {broker}; set only node.id"
            )));
        }
        let name = if broker.is_some() { "broker.id" } else { "node.id" };
        // Node ids are broker id x 1000 + shard and must fit 31 bits.
        let id: i32 = self.number(name)?;
        let largest = i32::MAX / crate::node::SHARDS_PER_BROKER - 1;
        if !(0..=largest).contains(&id) {
            let reason = format!("must be between 0 and {largest}");
            return Err(ConfigError::invalid(name, id.to_string(), reason));
        }
        Ok(id)
    }

    fn log_dirs(&self) -> Result<Vec<String>, ConfigError> {
        let text = self.text("log.dirs").or_else(|| self.text("log.dir")).unwrap_or_default();
        let dirs: Vec<String> =
            list(&text).into_iter().filter(|dir| !dir.is_empty()).map(String::from).collect();
        if dirs.is_empty() {
            return Err(ConfigError::Conflict("log.dirs names no directory".into()));
        }
        for (at, dir) in dirs.iter().enumerate() {
            if dirs[..at].contains(dir) {
                return Err(ConfigError::invalid("log.dirs", dir, "the directory is named twice"));
            }
        }
        Ok(dirs)
    }

    fn listeners(&self) -> Result<Vec<Listener>, ConfigError> {
        let text = self.text("listeners").unwrap_or_default();
        let kept = self.served(parse_listeners("listeners", &text)?)?;
        if kept.is_empty() {
            return Err(ConfigError::Conflict("listeners names no address for clients".into()));
        }
        Ok(kept)
    }

    fn advertised(&self) -> Result<Vec<Listener>, ConfigError> {
        let text = self.text("advertised.listeners").unwrap_or_default();
        let kept = self.served(parse_listeners("advertised.listeners", &text)?)?;
        match kept.iter().find(|listener| is_any_address(&listener.host)) {
            Some(listener) => Err(ConfigError::invalid(
                "advertised.listeners",
                listener.to_string(),
                "clients cannot connect to this address; name a host that they can reach",
            )),
            None => Ok(kept),
        }
    }

    /// Leaves out listeners of Kafka's controllers and refuses protocols that are not served:
    /// serving plain text on a port that was meant to be encrypted would be worse than not
    /// starting.
    fn served(&self, listeners: Vec<Listener>) -> Result<Vec<Listener>, ConfigError> {
        let controllers = self.text("controller.listener.names").unwrap_or_default();
        let map = self.text("listener.security.protocol.map").unwrap_or_default();
        let mut served = Vec::new();
        for listener in listeners {
            if list(&controllers).contains(&listener.name.as_str()) {
                continue;
            }
            let mapped = list(&map).into_iter().filter_map(|pair| pair.split_once(':'));
            let protocol = mapped
                .filter(|(name, _)| name.eq_ignore_ascii_case(&listener.name))
                .map(|(_, protocol)| protocol)
                .next()
                .ok_or_else(|| {
                    let reason = "listener.security.protocol.map does not name this listener";
                    ConfigError::invalid("listeners", listener.to_string(), reason)
                })?;
            if !protocol.eq_ignore_ascii_case("PLAINTEXT") {
                let reason = format!("{protocol} is not served yet; only PLAINTEXT is");
                return Err(ConfigError::invalid("listeners", listener.to_string(), reason));
            }
            served.push(listener);
        }
        Ok(served)
    }
}

impl std::fmt::Display for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.name, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.name, self.host, self.port)
        }
    }
}

fn is_any_address(host: &str) -> bool {
    host.is_empty() || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

fn parse_listeners(key: &str, text: &str) -> Result<Vec<Listener>, ConfigError> {
    let mut listeners: Vec<Listener> = Vec::new();
    for item in list(text) {
        let fail = |reason: &str| ConfigError::invalid(key, item, reason);
        let (name, address) =
            item.split_once("://").ok_or_else(|| fail("expected NAME://host:port"))?;
        let (host, port) =
            address.rsplit_once(':').ok_or_else(|| fail("expected NAME://host:port"))?;
        let port: u16 = port.parse().map_err(|_| fail("the port is not between 0 and 65535"))?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if name.is_empty() {
            return Err(fail("the listener has no name"));
        }
        if listeners.iter().any(|known| known.name.eq_ignore_ascii_case(name)) {
            return Err(fail("the listener is named twice"));
        }
        listeners.push(Listener { name: name.to_uppercase(), host: host.into(), port });
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(properties: &str) -> Result<BrokerConfig, String> {
        let fixed = StaticConfig::parse_properties(properties).map_err(|e| e.to_string())?;
        BrokerConfig::from_static(&fixed).map_err(|e| e.to_string())
    }

    #[test]
    fn zero_configuration_listens_on_loopback() {
        let config = BrokerConfig::default();
        assert_eq!(config.broker_id, 0);
        let listener = Listener { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port: 9092 };
        assert_eq!(config.listeners, [listener]);
        assert_eq!(config.log_dirs, ["./corelane-data"]);
        assert_eq!(config.socket_request_max_bytes, 104_857_600);
        assert_eq!(config.topic_defaults, TopicConfig::default());
        assert_eq!(config, read("").unwrap());
    }

    #[test]
    fn a_kafka_file_is_understood() {
        let config = read(
            "process.roles=broker,controller\nnode.id=7\n\
             controller.quorum.voters=7@localhost:9093\n\
             listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n\
             advertised.listeners=PLAINTEXT://broker-7.example:9092\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n\
             log.dirs=/var/a, /var/b\nnum.network.threads=3\nlog.retention.hours=1\n\
             offsets.topic.replication.factor=1\nbroker.rack=r1\n",
        )
        .unwrap();
        assert_eq!(config.broker_id, 7);
        let listeners: Vec<_> = config.listeners.iter().map(Listener::to_string).collect();
        assert_eq!(listeners, ["PLAINTEXT://:9092"]);
        assert_eq!(config.advertised_listeners[0].host, "broker-7.example");
        assert_eq!(config.log_dirs, ["/var/a", "/var/b"]);
        assert_eq!(config.rack.as_deref(), Some("r1"));
        assert_eq!(config.topic_defaults.retention_ms, 3_600_000);
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_reason() {
        for (properties, reason) in [
            ("node.id=1\nbroker.id=2", "node.id is 1 and broker.id is 2; set only node.id"),
            ("listeners=SSL://:9093", "SSL is not served yet; only PLAINTEXT is"),
            ("listeners=FOO://:9093", "listener.security.protocol.map does not name this listener"),
            ("listeners=localhost:9092", "expected NAME://host:port"),
            ("listeners=PLAINTEXT://h:99999", "the port is not between 0 and 65535"),
            ("listeners=PLAINTEXT://a:1,plaintext://b:2", "the listener is named twice"),
            ("listeners=CONTROLLER://:1", "listeners names no address for clients"),
            (
                "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
                "clients cannot connect to this address",
            ),
            ("log.dirs=/a,/a", "the directory is named twice"),
            ("node.id=2147483647", "must be between 0 and"),
            ("shards=1001", "Value must be no more than 1000"),
        ] {
            let error = read(properties).unwrap_err();
            assert!(error.contains(reason), "{properties}: {error}");
        }
    }

    #[test]
    fn the_old_name_of_the_id_still_works() {
        assert_eq!(read("broker.id=4").unwrap().broker_id, 4);
        assert_eq!(read("broker.id=-1\nnode.id=5").unwrap().broker_id, 5);
        assert_eq!(read("broker.id=-1").unwrap().broker_id, 0);
    }

    #[test]
    fn ipv6_addresses_are_read() {
        let config = read("listeners=PLAINTEXT://[::1]:9092").unwrap();
        assert_eq!(config.listeners[0].host, "::1");
        assert_eq!(config.listeners[0].to_string(), "PLAINTEXT://[::1]:9092");
    }
}
