//! `corelane serve`: from the command line to running shards, in an order that fails early.
//!
//! Probe the ring, read the configuration, look at the machine, and only then write: take the data
//! directories, say who we are, start the shards. All of it on the main thread, which afterwards
//! does nothing but wait for the shards; its ring holds the directories' locks.

use std::net::SocketAddr;

use hardware::{Check, Preflight, Resource, Status};
use reactor::Backend;

use super::data_dir::DataDirs;
use super::import_journal;
use super::report::{ShardLine, banner, check_list, host_list};
use super::shards::{self, Plan};
use super::{AFTERLIFE, AFTERLIFE_PAUSE};
use crate::cli::args::ServeArgs;
use crate::config::{Machine, Settings};
use crate::error::{Error, Result, plain, say, warn};

/// Kafka's own files are far below this.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

pub fn run(args: ServeArgs) -> Result<()> {
    refuse_absent(args.backend)?;
    if let Some(pid) = args.end_with_parent {
        let alone = |error| Error::machine(format!("process {pid}: {}", plain(&error)), "");
        hardware::end_with_parent(pid).map_err(alone)?;
    }
    let ring = reactor::uring::probe();
    if ring.is_err() {
        return Err(first_failure(&machine_checks(&args, ring)?));
    }
    let spec = reactor::ShardSpec { name: "main".to_owned(), ..reactor::ShardSpec::default() };
    let ran = reactor::uring::run(&spec, move || prepare(args));
    let prepared = ran.unwrap_or_else(|error| {
        Err(Error::machine(format!("cannot start a ring: {}", plain(&error)), ""))
    });
    let Some((plan, dirs)) = prepared? else { return Ok(()) };
    // Without a ring: this thread only waits for the shards, until the end.
    let ended = shards::run(plan);
    drop(dirs);
    ended
}

/// Everything up to the start of the shards; nothing is left to do where only a check was asked for.
async fn prepare(args: ServeArgs) -> Result<Option<(Plan, DataDirs)>> {
    let machine = look_at_machine()?;
    let file = read_config(&args).await?;
    let settings = Settings::resolve(&args, file.as_deref(), &machine)?;
    let addresses = addresses(&settings).await?;
    raise_limits();
    wait_for_ports(&addresses).await;
    let checks = hardware::preflight(&Preflight {
        data_dirs: &settings.data_dirs,
        addresses: &addresses,
        shards: settings.shards,
        memory_bytes: settings.memory_bytes,
        cpus: &machine.cpus,
        memory: machine.memory,
        ring: Ok(()),
    });
    let failed = checks.iter().filter(|check| check.status == Status::Fail).count();
    if args.check {
        say(&check_list(&checks));
        say(&advice(&settings));
        settings.warnings.iter().for_each(warn);
        let what = format!("{failed} of {} checks failed", checks.len());
        let refused = Err(Error::machine(what, "the `fail` lines say what to do"));
        return if failed > 0 { refused } else { Ok(None) };
    }
    if failed > 0 {
        return Err(first_failure(&checks));
    }
    let dirs = DataDirs::open(&settings.data_dirs, settings.broker_id).await?;
    import_journal::refuse_pending(&settings.data_dirs).await?;
    let resolved = settings.settle(dirs.broker_id)?;
    for check in checks.iter().filter(|check| check.status == Status::Warn) {
        warn(line(check));
    }
    settings.warnings.iter().for_each(warn);
    let lines = shard_lines(&settings, dirs.broker_id)?;
    say(&banner(&settings, &dirs.cluster_id, dirs.new, &lines));
    let plan = Plan {
        broker_id: dirs.broker_id,
        cluster_id: dirs.cluster_id.clone(),
        addresses,
        resolved,
        settings,
        data_dirs: dirs.dirs.clone(),
    };
    Ok(Some((plan, dirs)))
}

/// What the doctor found beyond the checks of a start: problems, and how much advice there is.
fn advice(settings: &Settings) -> String {
    let dirs: Vec<_> =
        settings.data_dirs.iter().filter_map(|d| hardware::place_of(d).ok()).collect();
    let request = hardware::Request { data_dirs: &dirs, checks: &[] };
    host_list(&hardware::examine(&hardware::Rooted::here(), &request))
}

/// Before anything else: a backend that is not in, or cannot run here.
fn refuse_absent(backend: Backend) -> Result<()> {
    if backend == Backend::Uring {
        return Ok(());
    }
    if !backend.is_in() {
        let name = backend.name();
        return Err(Error::config(
            format!("--backend {name}: this program was built without it"),
            format!("build with `cargo build --release --features {name}`, or leave the flag out"),
        ));
    }
    backend.probe().map_err(|error| Error::machine(plain(&error), "leave --backend out"))
}

fn look_at_machine() -> Result<Machine> {
    let unknown = |error: hardware::HardwareError| Error::machine(error, "");
    Ok(Machine {
        cpus: hardware::usable_cpus().map_err(unknown)?,
        memory: hardware::memory().map_err(unknown)?,
        address: hardware::outbound_address(),
    })
}

/// Without a ring nothing can be read; what can be said is said.
fn machine_checks(args: &ServeArgs, ring: std::io::Result<()>) -> Result<Vec<Check>> {
    let machine = look_at_machine()?;
    let checks = hardware::preflight(&Preflight {
        data_dirs: &args.data_dir,
        addresses: &[],
        shards: args.shards.unwrap_or(1),
        memory_bytes: machine.memory.usable(),
        cpus: &machine.cpus,
        memory: machine.memory,
        ring,
    });
    if args.check {
        say(&check_list(&checks));
    }
    Ok(checks)
}

async fn read_config(args: &ServeArgs) -> Result<Option<String>> {
    let Some(path) = &args.config else { return Ok(None) };
    let unreadable = |reason: &str| {
        let what = format!("{}: {reason}", path.display());
        Error::config(what, "name a readable file in the format of server.properties")
    };
    let found = reactor::fs::metadata(path).await.map_err(|error| unreadable(&plain(&error)))?;
    if found.size > MAX_CONFIG_BYTES {
        return Err(unreadable("longer than 1 MiB"));
    }
    let bytes = reactor::fs::read(path).await.map_err(|error| unreadable(&plain(&error)))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("not text"))?;
    Ok(Some(text))
}

/// Where each shard listens.
async fn addresses(settings: &Settings) -> Result<Vec<SocketAddr>> {
    let listen = &settings.listen;
    let host = if listen.host.is_empty() { "0.0.0.0" } else { &listen.host };
    let unknown = |reason: &str| {
        Error::config(
            format!("cannot listen on {listen}: {reason}"),
            "name an address of this machine",
        )
    };
    let found = reactor::net::resolve(host, listen.port).await;
    let found = found.map_err(|error| unknown(&plain(&error)))?;
    // A name with both kinds is `localhost` mostly, and most clients try IPv4.
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let base = best.ok_or_else(|| unknown("the name has no address"))?;
    let of_shard = |shard| {
        let endpoint = listen.of_shard(shard)?;
        Some(SocketAddr::new(base.ip(), endpoint.port))
    };
    (0..settings.shards).map(of_shard).collect::<Option<_>>().ok_or_else(|| unknown("no port left"))
}

/// Returns when the ports are free, or nobody gives them up; which of them, the preflight says.
async fn wait_for_ports(addresses: &[SocketAddr]) {
    let deadline = reactor::now() + AFTERLIFE;
    let taken =
        |&address: &SocketAddr| matches!(hardware::port_state(address), hardware::PortState::InUse);
    while addresses.iter().any(taken) && reactor::now() < deadline {
        reactor::sleep(AFTERLIFE_PAUSE).await;
    }
}

fn shard_lines(settings: &Settings, broker_id: i32) -> Result<Vec<ShardLine>> {
    let line = |shard: usize| {
        let number = u16::try_from(shard).ok()?;
        Some(ShardLine {
            shard,
            node_id: meta::NodeId::of(broker_id, number).0,
            cpu: settings.cpus.as_ref().and_then(|cpus| cpus.get(shard).copied()),
            advertised: settings.advertised.of_shard(shard)?.to_string(),
        })
    };
    let lines: Option<Vec<_>> = (0..settings.shards).map(line).collect();
    lines.ok_or_else(|| Error::internal("more shards than ports"))
}

/// Soft limits are defaults for shells, not wishes of the operator.
fn raise_limits() {
    for resource in [Resource::OpenFiles, Resource::LockedMemory] {
        if let Err(error) = hardware::raise_to_hard(resource) {
            tracing::debug!("{resource:?} stays as it is: {error}");
        }
    }
}

fn first_failure(checks: &[Check]) -> Error {
    let mut failed = checks.iter().filter(|check| check.status == Status::Fail);
    let Some(first) = failed.next() else { return Error::internal("no check has failed") };
    let more = match failed.count() {
        0 => String::new(),
        more => format!(" (and {more} more: `corelane serve --check` lists them)"),
    };
    let what = format!("{}: {}", first.name, first.finding);
    Error::machine(what, format!("{}{more}", first.remedy.as_deref().unwrap_or_default()))
}

fn line(check: &Check) -> String {
    let remedy = check.remedy.as_deref().unwrap_or_default();
    format!("{}: {}; {remedy}", check.name, check.finding)
}
