//! What the operator asked for: flags over `--set` over file over defaults, as one checked value.
//!
//! Owns the mapping between flags and Kafka's keys, and the defaults that depend on the machine.
//! Pure: the file's text and the facts about the machine are arguments; every key's name, type and
//! built-in default is `meta::config`'s.

pub mod endpoint;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hardware::{Cpus, Memory, parse_size};
use meta::config::{BrokerConfig, ConfigError, Effect, Listener, Scope, StaticConfig, find};
use reactor::Backend;

use crate::cli::args::ServeArgs;
use crate::error::{Error, Result};
use endpoint::{Endpoint, reachability_warning};

/// Node ids count shards in thousands.
const MAX_SHARDS: usize = 1000;
/// What a shard gets when nobody says how much: enough for the tails that live consumers read.
const MEMORY_OF_SHARD: u64 = 512 << 20;
/// At most this part of what the machine or its control group offers.
const MEMORY_SHARE: u64 = 2;

/// What is known about the machine before anything is decided.
#[derive(Debug, Clone)]
pub struct Machine {
    pub cpus: Cpus,
    pub memory: Memory,
    /// The address other machines most likely know this one by.
    pub address: Option<IpAddr>,
}

/// A checked configuration. The broker id is still open: a formatted data directory knows it.
#[derive(Debug, Clone)]
pub struct Settings {
    keys: StaticConfig,
    /// As given; `None` takes the data directory's.
    pub broker_id: Option<i32>,
    pub data_dirs: Vec<PathBuf>,
    /// Of shard 0; the others count up from it.
    pub listen: Endpoint,
    pub advertised: Endpoint,
    pub shards: usize,
    pub memory_bytes: u64,
    /// How long an idle shard spins.
    pub spin: Duration,
    /// What shards run on.
    pub backend: Backend,
    /// The CPU of each shard, if they are to be tied to one.
    pub cpus: Option<Vec<usize>>,
    /// One line each, for the operator.
    pub warnings: Vec<String>,
}

/// The configuration in both forms the broker takes.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub keys: StaticConfig,
    pub broker: BrokerConfig,
}

impl Settings {
    /// Puts flags and the text of the `--config` file together.
    pub fn resolve(args: &ServeArgs, file: Option<&str>, machine: &Machine) -> Result<Self> {
        let keys = read_keys(args, file)?;
        let broker = BrokerConfig::from_static(&keys).map_err(refused)?;
        let listen = listen(&broker)?;
        let advertised = advertised(args, &broker, &listen, machine)?;
        let shards = shards(args, &broker, &machine.cpus)?;
        for endpoint in [&listen, &advertised] {
            endpoint.fits(shards).map_err(|error| {
                Error::config(error, "choose a lower port or fewer shards (--shards)")
            })?;
        }
        refuse_admin_port_of_a_shard(&broker, &listen, shards)?;
        let given = keys.value("node.id").or_else(|| keys.value("broker.id"));
        let broker_id = given.filter(|id| *id != "-1").map(|_| broker.broker_id);
        refuse_ignored_protection(&keys)?;
        let warnings = [reachability_warning(&listen, &advertised), without_effect(&keys)];
        let warnings = warnings.into_iter().flatten().collect();
        Ok(Settings {
            broker_id,
            data_dirs: data_dirs(&broker)?,
            shards,
            memory_bytes: memory_bytes(&broker, machine.memory, shards),
            spin: Duration::from_micros(args.poll.unwrap_or(0)),
            backend: args.backend,
            cpus: pinning(args, shards, &machine.cpus),
            listen,
            advertised,
            warnings,
            keys,
        })
    }

    /// Writes what was decided back into the keys, so that DescribeConfigs shows what is.
    pub fn settle(&self, broker_id: i32) -> Result<Resolved> {
        let mut keys = self.keys.clone();
        let dirs: Vec<String> =
            self.data_dirs.iter().map(|dir| dir.display().to_string()).collect();
        let decided = [
            ("node.id", broker_id.to_string()),
            ("log.dirs", dirs.join(",")),
            ("listeners", format!("PLAINTEXT://{}", self.listen)),
            ("advertised.listeners", format!("PLAINTEXT://{}", self.advertised)),
            ("shards", self.shards.to_string()),
            ("memory.bytes", self.memory_bytes.to_string()),
        ];
        for (key, value) in decided {
            keys.set(key, &value).map_err(refused)?;
        }
        let broker = BrokerConfig::from_static(&keys).map_err(refused)?;
        Ok(Resolved { keys, broker })
    }
}

/// Flags win over `--set`, which wins over the file.
fn read_keys(args: &ServeArgs, file: Option<&str>) -> Result<StaticConfig> {
    let mut keys = StaticConfig::default();
    if let (Some(text), Some(path)) = (file, &args.config) {
        keys.merge_properties(text)
            .map_err(|error| Error::config(format!("{}: {error}", path.display()), ""))?;
    }
    for pair in &args.set {
        keys.set_pair(pair).map_err(|error| Error::config(format!("--set: {error}"), ""))?;
    }
    let mut set = |key: &str, value: String| keys.set(key, &value).map_err(refused);
    if let Some(id) = args.broker_id {
        set("node.id", id.to_string())?;
        set("broker.id", "-1".to_owned())?;
    }
    if !args.data_dir.is_empty() {
        let dirs: Vec<String> = args.data_dir.iter().map(|dir| dir.display().to_string()).collect();
        if let Some(dir) = dirs.iter().find(|dir| dir.contains(',')) {
            return Err(Error::config(format!("{dir} has a comma in its name"), "rename it"));
        }
        set("log.dirs", dirs.join(","))?;
    }
    if let Some(text) = &args.listen {
        let listen = Endpoint::parse(text).map_err(|error| Error::config(error, ""))?;
        set("listeners", format!("PLAINTEXT://{listen}"))?;
    }
    if let Some(shards) = args.shards {
        set("shards", shards.to_string())?;
    }
    if let Some(port) = args.admin_port {
        set("admin.port", port.to_string())?;
    }
    if let Some(text) = &args.memory {
        let bytes = parse_size(text).map_err(|error| Error::config(error, ""))?;
        set("memory.bytes", bytes.to_string())?;
    }
    Ok(keys)
}

/// Serving everybody where the operator asked for access control would be worse than not starting.
fn refuse_ignored_protection(keys: &StaticConfig) -> Result<()> {
    const KEY: &str = "authorizer.class.name";
    let found = find(Scope::Broker, KEY).is_some_and(|key| key.effect == Effect::AcceptedOnly);
    match keys.value(KEY) {
        Some(class) if found && !class.is_empty() => Err(Error::config(
            format!("{KEY} is set, but this version has no access control"),
            "take it out only if every client that can connect may do everything",
        )),
        _ => Ok(()),
    }
}

/// Names what a file from Kafka sets in vain.
fn without_effect(keys: &StaticConfig) -> Option<String> {
    // These only say how Kafka's own processes are laid out.
    let layout = |key: &str| key == "process.roles" || key.starts_with("controller.");
    let idle =
        |key: &str| find(Scope::Broker, key).is_some_and(|key| key.effect == Effect::AcceptedOnly);
    let set = keys.iter().map(|(key, _)| key).filter(|key| idle(key) && !layout(key));
    let names: Vec<&str> = set.collect();
    (!names.is_empty()).then(|| {
        format!("these settings are known but change nothing in this version: {}", names.join(", "))
    })
}

fn refused(error: ConfigError) -> Error {
    Error::config(error, "")
}

fn one<'a>(key: &str, listeners: &'a [Listener]) -> Result<Option<&'a Listener>> {
    match listeners {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        more => Err(Error::config(
            format!("{key} names {} addresses for clients", more.len()),
            "this version serves one; leave one of them",
        )),
    }
}

fn listen(broker: &BrokerConfig) -> Result<Endpoint> {
    let listener = one("listeners", &broker.listeners)?;
    let listener = listener.ok_or_else(|| Error::config("no address to listen on", ""))?;
    if listener.port == 0 {
        return Err(Error::config("port 0 is no port", "shards need ports that clients can know"));
    }
    Ok(Endpoint { host: listener.host.clone(), port: listener.port })
}

/// What clients are told: as asked, else the listen address if that is one, else this machine's.
fn advertised(
    args: &ServeArgs,
    broker: &BrokerConfig,
    listen: &Endpoint,
    machine: &Machine,
) -> Result<Endpoint> {
    if let Some(text) = &args.advertise {
        return Endpoint::parse_with_default_port(text, listen.port)
            .map_err(|error| Error::config(format!("--advertise: {error}"), ""));
    }
    if let Some(listener) = one("advertised.listeners", &broker.advertised_listeners)? {
        return Ok(Endpoint { host: listener.host.clone(), port: listener.port });
    }
    if !listen.is_wildcard() {
        return Ok(listen.clone());
    }
    let host = machine.address.map_or("localhost".to_owned(), |address| address.to_string());
    Ok(Endpoint { host, port: listen.port })
}

fn shards(args: &ServeArgs, broker: &BrokerConfig, cpus: &Cpus) -> Result<usize> {
    let asked = usize::try_from(broker.shards).unwrap_or(usize::MAX);
    if args.shards == Some(0) {
        return Err(Error::config(
            "0 shards serve nobody",
            "ask for at least one, or leave it out",
        ));
    }
    match asked {
        0 => Ok(cpus.parallelism().min(MAX_SHARDS)),
        more if more > MAX_SHARDS => {
            let what = format!("{more} shards are more than {MAX_SHARDS}");
            Err(Error::config(what, "node ids leave no room for more"))
        }
        some => Ok(some),
    }
}

fn memory_bytes(broker: &BrokerConfig, memory: Memory, shards: usize) -> u64 {
    match broker.memory_bytes {
        0 => default_memory_bytes(memory, shards),
        some => some,
    }
}

/// What a broker takes that is told nothing.
pub fn default_memory_bytes(memory: Memory, shards: usize) -> u64 {
    (MEMORY_OF_SHARD * shards as u64).min(memory.usable() / MEMORY_SHARE)
}

/// Both would have to listen there, and one would only find out once the others serve.
fn refuse_admin_port_of_a_shard(
    broker: &BrokerConfig,
    listen: &Endpoint,
    shards: usize,
) -> Result<()> {
    let taken = (0..shards).find(|shard| {
        let endpoint = listen.of_shard(*shard);
        endpoint.is_some_and(|endpoint| i32::from(endpoint.port) == broker.admin_port)
    });
    let Some(shard) = taken.filter(|_| broker.admin_port > 0) else { return Ok(()) };
    let what = format!("the admin port {} is that of shard {shard}", broker.admin_port);
    Err(Error::config(what, "choose another --admin-port (admin.port)"))
}

fn data_dirs(broker: &BrokerConfig) -> Result<Vec<PathBuf>> {
    let dirs: Vec<PathBuf> = broker.log_dirs.iter().map(PathBuf::from).collect();
    if dirs.is_empty() {
        return Err(Error::config("no data directory", "name one with --data-dir"));
    }
    Ok(dirs)
}

/// One CPU a shard where there are enough that nobody else shares through a quota.
fn pinning(args: &ServeArgs, shards: usize, cpus: &Cpus) -> Option<Vec<usize>> {
    let pin = !args.no_pin && cpus.pinnable() && shards <= cpus.ids.len();
    pin.then(|| cpus.ids.iter().copied().take(shards).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            cpus: Cpus { ids: vec![2, 3, 5, 7], quota: None },
            memory: Memory { total: 8 << 30, limit: None },
            address: Some(IpAddr::from([10, 0, 0, 5])),
        }
    }

    fn resolve(args: &ServeArgs, file: &str) -> Result<Settings> {
        Settings::resolve(args, Some(file), &machine())
    }

    fn args() -> ServeArgs {
        ServeArgs { config: Some("server.properties".into()), ..ServeArgs::default() }
    }

    #[test]
    fn nothing_asked_is_a_loopback_broker_on_every_cpu() {
        let settings = Settings::resolve(&ServeArgs::default(), None, &machine()).unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:9092");
        assert_eq!(settings.advertised, settings.listen);
        assert_eq!(settings.data_dirs, [PathBuf::from("./corelane-data")]);
        assert_eq!(settings.shards, 4);
        assert_eq!(settings.cpus, Some(vec![2, 3, 5, 7]));
        assert_eq!(settings.memory_bytes, 2 << 30);
        assert_eq!(settings.broker_id, None);
        assert!(settings.warnings.is_empty());
    }

    #[test]
    fn the_file_maps_and_flags_win() {
        let file = "node.id=7\nlisteners=PLAINTEXT://:19092\nlog.dirs=/a,/b\nnum.partitions=3\n";
        let settings = resolve(&args(), file).unwrap();
        assert_eq!(settings.broker_id, Some(7));
        assert_eq!(settings.listen.to_string(), ":19092");
        assert_eq!(settings.advertised.to_string(), "10.0.0.5:19092");
        assert_eq!(settings.data_dirs.len(), 2);
        let flags = ServeArgs {
            broker_id: Some(9),
            listen: Some("127.0.0.1:9093".into()),
            data_dir: vec!["/c".into()],
            set: vec!["num.partitions=5".into()],
            shards: Some(2),
            memory: Some("512M".into()),
            ..args()
        };
        let settings = resolve(&flags, file).unwrap();
        assert_eq!(settings.broker_id, Some(9));
        let resolved = settings.settle(9).unwrap();
        assert_eq!(resolved.broker.num_partitions, 5);
        assert_eq!(resolved.keys.value("log.dirs"), Some("/c"));
        assert_eq!(resolved.keys.value("listeners"), Some("PLAINTEXT://127.0.0.1:9093"));
        assert_eq!(resolved.broker.shards, 2);
        assert_eq!(resolved.broker.memory_bytes, 512 << 20);
    }

    #[test]
    fn a_legacy_broker_id_is_a_broker_id() {
        assert_eq!(resolve(&args(), "broker.id=3\n").unwrap().broker_id, Some(3));
        assert_eq!(resolve(&args(), "broker.id=-1\n").unwrap().broker_id, None);
        let flags = ServeArgs { broker_id: Some(4), ..args() };
        let settings = resolve(&flags, "broker.id=3\n").unwrap();
        assert_eq!(settings.broker_id, Some(4));
        assert_eq!(settings.settle(4).unwrap().broker.broker_id, 4);
    }

    #[test]
    fn advertising_follows_the_rules() {
        let advertise = |listen: &str, advertise: Option<&str>, machine: &Machine| {
            let args = ServeArgs {
                listen: Some(listen.into()),
                advertise: advertise.map(Into::into),
                ..ServeArgs::default()
            };
            let settings = Settings::resolve(&args, None, machine).unwrap();
            (settings.advertised.to_string(), settings.warnings.len())
        };
        let known = machine();
        let lost = Machine { address: None, ..machine() };
        let table = [
            ("0.0.0.0:9092", None, &known, "10.0.0.5:9092", 0),
            ("0.0.0.0:9092", None, &lost, "localhost:9092", 1),
            ("0.0.0.0:9092", Some("kafka.example"), &known, "kafka.example:9092", 0),
            ("0.0.0.0:9092", Some("kafka.example:443"), &known, "kafka.example:443", 0),
            ("127.0.0.1:9092", Some("kafka.example"), &known, "kafka.example:9092", 1),
            ("10.0.0.5:9092", None, &known, "10.0.0.5:9092", 0),
        ];
        for (listen, asked, machine, told, warnings) in table {
            assert_eq!(advertise(listen, asked, machine), (told.into(), warnings), "{listen}");
        }
    }

    #[test]
    fn mistakes_are_refused_with_a_remedy() {
        let error = |args: &ServeArgs, file| resolve(args, file).unwrap_err().to_string();
        let text = error(&args(), "listeners=PLAINTEXT://:9092\nadmin.port=9093\n");
        assert!(text.contains("the admin port 9093 is that of shard 1"), "{text}");
        let text = error(&args(), "num.partitons=3\n");
        assert!(text.contains("server.properties: line 1"), "{text}");
        assert!(text.contains("did you mean num.partitions?"), "{text}");
        let set = ServeArgs { set: vec!["num.partitons=3".into()], ..args() };
        assert!(error(&set, "").contains("did you mean num.partitions?"));
        let none = ServeArgs { shards: Some(0), ..args() };
        assert!(error(&none, "").contains("0 shards"));
        let end = ServeArgs { listen: Some("h:65535".into()), shards: Some(2), ..args() };
        assert!(error(&end, "").contains("past port 65535"));
        let memory = ServeArgs { memory: Some("lots".into()), ..args() };
        assert!(error(&memory, "").contains("512M"));
        let two = "listeners=PLAINTEXT://:1,OTHER://:2\n\
                   listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT\n";
        assert!(error(&args(), two).contains("names 2 addresses"));
    }

    #[test]
    fn settings_without_effect_are_named_and_protection_is_not_ignored() {
        let file = "num.network.threads=8\nprocess.roles=broker\nnum.partitions=2\n";
        let warnings = resolve(&args(), file).unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].ends_with(": num.network.threads"), "{warnings:?}");
        let class = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        let file = format!("authorizer.class.name={class}\n");
        let error = resolve(&args(), &file).unwrap_err().to_string();
        assert!(error.contains("no access control"), "{error}");
    }

    #[test]
    fn cpus_are_tied_only_where_each_shard_has_its_own() {
        let pin = |shards, quota, no_pin| {
            let cpus = Cpus { ids: vec![0, 1], quota };
            pinning(&ServeArgs { no_pin, ..args() }, shards, &cpus)
        };
        assert_eq!(pin(2, None, false), Some(vec![0, 1]));
        assert_eq!(pin(1, None, false), Some(vec![0]));
        assert_eq!(pin(3, None, false), None);
        assert_eq!(pin(1, Some(1.0), false), None);
        assert_eq!(pin(2, None, true), None);
    }
}
