//! The command line as clap sees it: every command, flag, default and example.
//!
//! Owns names and help texts only; each command's file does the work.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use reactor::Backend;

use super::position::{Position, TopicPartitions};
use crate::config::endpoint::Endpoint;
use crate::error::Exit;

#[derive(Debug, Parser)]
#[command(
    name = "corelane",
    version,
    about = "A Kafka-compatible broker with one single-threaded shard per CPU core",
    after_help = Exit::TABLE,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Arguments {
    /// What to log to stderr: error, warn, info, debug, trace, or a filter such as
    /// `info,broker=debug` [default: RUST_LOG, else info for serve and warn for the rest]
    #[arg(long, global = true, value_name = "LEVEL", display_order = 999)]
    pub log: Option<String>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the broker on this machine
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Create, list, describe, change and delete topics of any Kafka cluster
    #[command(subcommand, after_help = TOPIC_EXAMPLES)]
    Topic(TopicCommand),
    /// List, describe, reset and delete consumer groups of any Kafka cluster
    #[command(subcommand, after_help = GROUP_EXAMPLES)]
    Group(GroupCommand),
    /// List, describe and abort transactions of any Kafka cluster
    #[command(subcommand, after_help = TXN_EXAMPLES)]
    Txn(TxnCommand),
    /// Send records from stdin or files
    #[command(after_help = PRODUCE_EXAMPLES)]
    Produce(ProduceArgs),
    /// Print records
    #[command(after_help = CONSUME_EXAMPLES)]
    Consume(ConsumeArgs),
    /// Take over topics that Apache Kafka or another Corelane wrote; while the broker is stopped
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Show what is in the files of a data directory, and check that it fits together
    #[command(after_help = DUMP_EXAMPLES)]
    Dump(DumpArgs),
    /// Put a load on any Kafka cluster and report what came of it; or measure disks
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchLine),
    /// Check what this host gives a broker, and explain each finding
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Show what would be set on this host, set it, or print the files that keep it
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(TuneArgs),
    /// Print the version, and the backends that are in
    #[command(after_help = "Example:\n  corelane version")]
    Version,
}

const SERVE_EXAMPLES: &str = "Examples:\n  \
    corelane serve\n  \
    corelane serve --listen 0.0.0.0:9092 --advertise kafka1.example\n  \
    corelane serve --data-dir /data/a --data-dir /data/b\n  \
    corelane serve --config server.properties --set num.partitions=6\n  \
    corelane serve --check";

#[derive(Debug, Args, Clone, Default)]
pub struct ServeArgs {
    /// Settings in the format and under the names of Kafka's server.properties
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where records are kept; repeat it for several disks [default: ./corelane-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Vec<PathBuf>,
    /// Where to listen; shard N listens on PORT+N [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// What clients are told to connect to [default: the listen address, or this machine's]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise: Option<String>,
    /// This broker's number; shard N is Kafka node NUMBER*1000+N
    /// [default: the data directory's, else 0]
    #[arg(long, value_name = "NUMBER")]
    pub broker_id: Option<i32>,
    /// How many shards to run [default: one for each usable CPU]
    #[arg(long, value_name = "N")]
    pub shards: Option<usize>,
    /// Memory for caches and buffers, for example 512M or 4G [default: 512 MiB for each
    /// shard, at most half of what is usable]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Where metrics and health are served over HTTP, on the loopback address; 0: nowhere
    /// [default: 1000 above the first port, if it is free]
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<u16>,
    /// One setting under its Kafka name; wins over the file
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Let idle shards spin so many microseconds before they sleep: lower latency, more CPU
    #[arg(long, value_name = "MICROSECONDS", num_args = 0..=1, default_missing_value = "100")]
    pub poll: Option<u64>,
    /// What shards run on; `corelane version` says which backends are in
    #[arg(long, value_name = "NAME", default_value = "uring", value_parser = backend)]
    pub backend: Backend,
    /// Leave the placing of shards on CPUs to the kernel
    #[arg(long)]
    pub no_pin: bool,
    /// End with the process of this number, which starts this one: for measurements
    #[arg(long, value_name = "PID", hide = true)]
    pub end_with_parent: Option<u32>,
    /// Only check whether this machine can run the broker, and print each finding
    #[arg(long)]
    pub check: bool,
}

fn backend(name: &str) -> Result<Backend, String> {
    Backend::named(name).ok_or_else(|| {
        let names: Vec<_> = Backend::ALL.iter().map(|backend| backend.name()).collect();
        format!("the backends are {}", names.join(" and "))
    })
}

const TOPIC_EXAMPLES: &str = "Examples:\n  \
    corelane topic create orders --partitions 6 --set retention.ms=3600000\n  \
    corelane topic describe orders --configs";

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Create topics
    #[command(after_help = "Example:\n  \
        corelane topic create orders payments --partitions 6 --set cleanup.policy=compact")]
    Create(TopicCreateArgs),
    /// List topics, one name a line
    #[command(after_help = "Example:\n  corelane topic list --bootstrap kafka1.example:9092")]
    List(TopicListArgs),
    /// Show partitions, leaders, replicas and, if asked, settings
    #[command(after_help = "Example:\n  corelane topic describe orders --configs")]
    Describe(TopicDescribeArgs),
    /// Delete topics with their records
    #[command(after_help = "Example:\n  corelane topic delete orders")]
    Delete(TopicDeleteArgs),
    /// Add partitions, set or unset settings
    #[command(after_help = "Example:\n  \
        corelane topic alter orders --partitions 12 --set retention.ms=-1 --unset cleanup.policy")]
    Alter(TopicAlterArgs),
}

const TXN_EXAMPLES: &str = "Examples:\n  \
    corelane txn list --state ongoing\n  \
    corelane txn describe billing\n  \
    corelane txn abort billing";
const GROUP_EXAMPLES: &str = "Examples:\n  \
    corelane group describe billing\n  \
    corelane group reset billing orders --to earliest --dry-run";

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List groups with their protocol and state
    #[command(after_help = "Example:\n  corelane group list --state stable")]
    List(GroupListArgs),
    /// Show committed offsets, lag and members
    #[command(after_help = "Example:\n  corelane group describe billing")]
    Describe(GroupDescribeArgs),
    /// Set where a group without members goes on in a topic
    #[command(after_help = "Examples:\n  \
        corelane group reset billing orders --to earliest --dry-run\n  \
        corelane group reset billing orders:0,2 --to 2026-08-21T10:00:00Z")]
    Reset(GroupResetArgs),
    /// Delete groups without members, with their offsets
    #[command(after_help = "Example:\n  corelane group delete billing")]
    Delete(GroupDeleteArgs),
}

#[derive(Debug, Subcommand)]
pub enum TxnCommand {
    /// List transactional ids with the state of their transactions
    #[command(after_help = "Example:\n  corelane txn list --state ongoing")]
    List(TxnListArgs),
    /// Show a transactional id: its producer, and the partitions of its transaction
    #[command(after_help = "Example:\n  corelane txn describe billing")]
    Describe(TxnDescribeArgs),
    /// Fence the producer of a transactional id, or end a transaction that hangs in a partition
    #[command(after_help = "Examples:\n  \
        corelane txn abort billing\n  \
        corelane txn abort --partition orders:3 --start-offset 120")]
    Abort(TxnAbortArgs),
}

/// As Kafka's brokers name them, in small letters.
const TXN_STATES: [&str; 8] = [
    "empty",
    "ongoing",
    "preparecommit",
    "prepareabort",
    "completecommit",
    "completeabort",
    "prepareepochfence",
    "dead",
];
/// Of groups of every kind.
const GROUP_STATES: [&str; 8] = [
    "empty",
    "preparingrebalance",
    "completingrebalance",
    "assigning",
    "reconciling",
    "stable",
    "notready",
    "dead",
];

#[derive(Debug, Args)]
pub struct TxnListArgs {
    /// Only those in this state; repeat it for several
    #[arg(long, value_name = "STATE", ignore_case = true,
        value_parser = PossibleValuesParser::new(TXN_STATES))]
    pub state: Vec<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct TxnDescribeArgs {
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct TxnAbortArgs {
    /// Transactional id whose producer is fenced
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Where a transaction hangs that no coordinator knows any more
    #[arg(long, value_name = "TOPIC:PARTITION", requires = "start_offset", conflicts_with = "id")]
    pub partition: Option<OnePartition>,
    /// Its first offset in that partition
    #[arg(long, value_name = "OFFSET", requires = "partition",
        value_parser = clap::value_parser!(i64).range(0..))]
    pub start_offset: Option<i64>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// `TOPIC:PARTITION`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnePartition {
    pub topic: String,
    pub index: i32,
}

impl FromStr for OnePartition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (topic, index) = text.rsplit_once(':').ok_or("write it as TOPIC:PARTITION")?;
        let index = index.parse().map_err(|_| format!("`{index}` is no number of a partition"))?;
        Ok(OnePartition { topic: topic.to_owned(), index })
    }
}

#[derive(Debug, Args)]
pub struct GroupListArgs {
    /// Only those in this state; repeat it for several
    #[arg(long, value_name = "STATE", ignore_case = true,
        value_parser = PossibleValuesParser::new(GROUP_STATES))]
    pub state: Vec<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct GroupDescribeArgs {
    #[arg(value_name = "GROUP", required = true)]
    pub groups: Vec<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct GroupResetArgs {
    #[arg(value_name = "GROUP")]
    pub group: String,
    /// A topic, or some of its partitions: orders:0,3-5
    #[arg(value_name = "TOPIC[:PARTITIONS]")]
    pub source: TopicPartitions,
    /// earliest, latest, an offset, -N (before the end of each partition), an age (15m), a time
    /// (2026-08-21T10:00:00Z) or @MILLISECONDS
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    pub to: Position,
    /// Only show what would change
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct GroupDeleteArgs {
    #[arg(value_name = "GROUP", required = true)]
    pub groups: Vec<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Common to all commands that talk to a cluster.
#[derive(Debug, Args, Clone)]
pub struct ClusterArgs {
    /// Brokers to start from
    #[arg(
        long,
        short = 'b',
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:9092",
        value_parser = parse_bootstrap
    )]
    pub bootstrap: Vec<Endpoint>,
    /// How many seconds to keep trying
    #[arg(long, value_name = "SECONDS", default_value = "30",
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub timeout: u32,
}

fn parse_bootstrap(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse_with_default_port(text, 9092).map_err(|error| error.to_string())
}

#[derive(Debug, Args)]
pub struct TopicCreateArgs {
    /// Names of the new topics
    #[arg(required = true, value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// How many partitions [default: the cluster's num.partitions]
    #[arg(long, short, value_name = "N")]
    pub partitions: Option<i32>,
    /// How many replicas of each [default: the cluster's default.replication.factor]
    #[arg(long, short, value_name = "N")]
    pub replication_factor: Option<i16>,
    /// A topic setting; repeat it for several
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Be content with a topic that is already there
    #[arg(long)]
    pub if_not_exists: bool,
    /// Check only, create nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct TopicListArgs {
    /// Internal topics too
    #[arg(long)]
    pub internal: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct TopicDescribeArgs {
    /// Which topics [default: all that are not internal]
    #[arg(value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// Also the settings that differ from the defaults
    #[arg(long)]
    pub configs: bool,
    /// Also every other setting
    #[arg(long)]
    pub all_configs: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct TopicDeleteArgs {
    /// Names of the topics to delete
    #[arg(required = true, value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// Be content if a topic is not there
    #[arg(long)]
    pub if_exists: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct TopicAlterArgs {
    /// The topic to change
    #[arg(value_name = "TOPIC")]
    pub topic: String,
    /// The new number of partitions; it can only grow
    #[arg(long, short, value_name = "N")]
    pub partitions: Option<i32>,
    /// Set a topic setting; repeat it for several
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Take a topic setting back to its default; repeat it for several
    #[arg(long, value_name = "KEY")]
    pub unset: Vec<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

const BENCH_EXAMPLES: &str = "Examples:\n  \
    corelane bench --rate 20000 --record-bytes 100 --partitions 12\n  \
    corelane bench 1-topic-1-partition-1kb --repeats 3 --broker-pid 4711\n  \
    corelane bench latency-curve-1kb --bootstrap kafka1.example:9092 --seconds 60\n  \
    corelane bench --kind end-to-end --rate 10000 --arrivals poisson --codec lz4 --value text\n  \
    corelane bench disk /data/a --quick\n\n\
    The first Ctrl-C writes the report of what there is.";

const PRODUCE_EXAMPLES: &str = "Examples:\n  \
    echo hello | corelane produce greetings\n  \
    corelane produce users --key-separator : users.txt\n  \
    corelane produce photos --format file *.jpg --compression none\n  \
    corelane consume a --format json | corelane produce b --format json\n\n\
    JSON lines (every field may be left out; key_base64 and value_base64 take bytes):\n  \
    {\"key\":\"k\",\"value\":\"v\",\"headers\":[{\"name\":\"n\",\"value\":\"h\"}],\"partition\":0,\"timestamp\":1}";

#[derive(Debug, Args)]
pub struct ProduceArgs {
    /// Where to send the records
    pub topic: String,
    /// Read these instead of stdin
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How input is cut into records
    #[arg(long, short, default_value = "lines")]
    pub format: ProduceFormat,
    /// Split each line into key and value here
    #[arg(long, short = 'k', value_name = "TEXT")]
    pub key_separator: Option<String>,
    /// A key or value that reads exactly so is null
    #[arg(long, value_name = "TEXT")]
    pub null: Option<String>,
    /// A header for every record; repeat it for several
    #[arg(long, short = 'H', value_name = "NAME=VALUE")]
    pub header: Vec<String>,
    /// Send everything to this partition [default: by key, else a batch to each in turn]
    #[arg(long, short, value_name = "N")]
    pub partition: Option<i32>,
    /// When a record counts as sent: 0 at once, 1 the leader has it, all every in-sync replica too
    #[arg(long, short, default_value = "all")]
    pub acks: Acks,
    /// How batches are compressed
    #[arg(long, short = 'z', default_value = "none")]
    pub compression: Compression,
    /// Say nothing at the end
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProduceFormat {
    /// One record a line
    Lines,
    /// One JSON object a line, as `consume --format json` prints it
    Json,
    /// Each file is one record's value
    File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Acks {
    #[value(name = "0")]
    None,
    #[value(name = "1")]
    Leader,
    #[value(name = "all", alias = "-1")]
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

const CONSUME_EXAMPLES: &str = "Examples:\n  \
    corelane consume orders\n  \
    corelane consume orders:0,3-5 --from -10 --format '%p:%o %k=%v'\n  \
    corelane consume orders --from 15m --follow --format json\n  \
    corelane consume orders --group billing --follow\n\n\
    Formats:\n  \
    value, key-value, json, or a pattern of %k key, %v value, %h headers, %o offset,\n  \
    %p partition, %t timestamp in ms, %T topic, %% percent, \\n \\t \\0 \\xNN";

#[derive(Debug, Args)]
pub struct ConsumeArgs {
    /// A topic, or some of its partitions: orders:0,3-5
    #[arg(value_name = "TOPIC[:PARTITIONS]")]
    pub source: TopicPartitions,
    /// earliest, latest, an offset, -N (the last N of each partition), an age (15m), a time
    /// (2026-08-21T10:00:00Z) or @MILLISECONDS [default: earliest, or latest with --follow]
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    pub from: Option<Position>,
    /// As a member of this consumer group: share the partitions, go on where the group was
    /// (--from holds where it has not been), and commit what was printed
    #[arg(long, short = 'g', value_name = "NAME")]
    pub group: Option<String>,
    /// Stop after so many records
    #[arg(long, short = 'n', value_name = "N")]
    pub count: Option<u64>,
    /// Wait for more at the end instead of stopping there
    #[arg(long, short)]
    pub follow: bool,
    /// value, key-value, json, or a pattern; see below
    #[arg(long, short = 'o', default_value = "value")]
    pub format: String,
    /// Between key and value in key-value
    #[arg(long, short = 'k', value_name = "TEXT", default_value = "\\t")]
    pub key_separator: String,
    /// After each record
    #[arg(long, value_name = "TEXT", default_value = "\\n")]
    pub terminator: String,
    /// What to print for a null key or value
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub null: String,
    /// Records of unfinished and aborted transactions too
    #[arg(long)]
    pub uncommitted: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

const IMPORT_EXAMPLES: &str = "Examples:\n  \
    corelane import --data-dir /data /kafka/orders-0 /kafka/orders-1\n  \
    corelane import --data-dir /data --move --set cleanup.policy=compact /kafka/users-0\n  \
    corelane import --data-dir /data\n\n\
    Every partition of a topic is named, 0 first. Topic id, offsets, timestamps, epochs and aborted\n\
    transactions stay as they are; the settings of the topics are those of --set, since the\n\
    folders do not hold them. Everything is checked before anything is changed; an import that was\n\
    cut off is taken back, or finished, by the next one, also by one without folders.";

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The data directories of the broker that gets the topics; all of them
    #[arg(long, required = true, value_name = "DIR")]
    pub data_dir: Vec<PathBuf>,
    /// Folders of partitions, of a broker that does not run
    #[arg(value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// A setting of the new topics; repeat it for several
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Leave the folders where they are, and copy them (the default)
    #[arg(long, conflicts_with = "move_")]
    pub copy: bool,
    /// Take the folders away from where they are
    #[arg(long = "move")]
    pub move_: bool,
}

const DUMP_EXAMPLES: &str = "Examples:\n  \
    corelane dump /data/orders-0/00000000000000000000.log\n  \
    corelane dump --records --json /data/__consumer_offsets-3\n  \
    corelane dump --verify /data\n\n\
    --verify tells notes (nothing is wrong), repairable things (the next start makes them good) and\n\
    damage, each with file and byte; it ends with code 4 if there is more than notes.\n\
    Files are only read. Beside a running broker the end of a file may be seen half written.";

#[derive(Debug, Args)]
pub struct DumpArgs {
    /// Files, folders of partitions or data directories, of Corelane or Apache Kafka
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Keys, values and headers of every record too; of internal topics in words
    #[arg(long, alias = "deep", conflicts_with = "verify")]
    pub records: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Check instead of show
    #[arg(long)]
    pub verify: bool,
}

/// A load, unless something else is named.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchLine {
    #[command(subcommand)]
    pub what: Option<BenchCommand>,
    #[command(flatten)]
    pub load: rig::bench::BenchArgs,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure what disks can do through Corelane's own input and output
    #[command(after_help = BENCH_DISK_EXAMPLES)]
    Disk(BenchDiskArgs),
    /// Make the pages of a report.json again, HTML and Markdown
    #[command(after_help = BENCH_REPORT_EXAMPLES)]
    Report(rig::report::pages::PagesArgs),
}

const BENCH_REPORT_EXAMPLES: &str = "Examples:\n  \
    corelane bench report results/report.json\n  \
    corelane bench report results/report.json --html page.html\n\n\
    The HTML page stands alone: it needs no network, no script and no other file.";

const BENCH_DISK_EXAMPLES: &str = "Examples:\n  \
    corelane bench disk /data/a --save a.toml\n  \
    corelane bench disk /data/a /data/b --quick --report results\n  \
    corelane bench disk /data/a /data/b --broker\n  \
    corelane bench disk /data/a --emulate hdd\n\n\
    Direct I/O through io_uring on a file without a name, at most an eighth of what is free: nothing is left\n\
    behind, however it ends. With --broker a folder corelane-bench-* is there meanwhile. A directory must be there; several are measured one after the other and then\n\
    written to at the same time. `--save` keeps a hardware profile (hardware/profiles).";

#[derive(Debug, Args)]
pub struct BenchDiskArgs {
    /// A directory on each disk
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Fewer sizes and depths
    #[arg(long)]
    pub quick: bool,
    /// For each size and depth; synced overwrites take ten times that, with --quick four
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub seconds: Duration,
    /// Of the test file [default: 16 GiB, or an eighth of what is free]
    #[arg(long, value_name = "SIZE")]
    pub file_size: Option<String>,
    /// Hold the disk to another one's limits: sata-ssd or hdd; needs root and control groups
    #[arg(long, value_name = "KIND")]
    pub emulate: Option<String>,
    /// Then start this broker on each disk, load it and hold it against the disk
    #[arg(long)]
    pub broker: bool,
    /// Shards of each of those brokers
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64), requires = "broker")]
    pub shards: u16,
    /// The first port that they may use [default: any that is free from 20000 on]
    #[arg(long, value_name = "PORT", requires = "broker")]
    pub port: Option<u16>,
    /// Where to keep the hardware profile; with several directories -1, -2 and so on go before the ending
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Folder for report.json and its pages, report.html and report.md
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// Between a hundredth of a second and an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match number {
        _ if (0.01..=3600.0).contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err("between 0.01 and 3600 seconds".to_owned()),
    }
}

const DOCTOR_EXAMPLES: &str = "Examples:\n  \
    corelane doctor --data-dir /data/a --data-dir /data/b\n  \
    corelane doctor --json\n\n\
    It only looks. It ends with code 3 if anything is a problem; advice alone is a success.";

/// What `doctor` and `tune` look at.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Where records are kept; repeat it for several disks
    #[arg(long, value_name = "DIR", default_value = "./corelane-data")]
    pub data_dir: Vec<PathBuf>,
    /// How many shards are to run [default: one for each usable CPU]
    #[arg(long, value_name = "N")]
    pub shards: Option<usize>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub host: HostArgs,
    /// Leave out what is as it should be
    #[arg(long)]
    pub brief: bool,
}

const TUNE_EXAMPLES: &str = "Examples:\n  \
    corelane tune --data-dir /data/a            # what would be set\n  \
    corelane tune --data-dir /data/a --apply    # set it, as root, until the next boot\n  \
    corelane tune --print-files                 # what keeps it\n  \
    corelane tune --apply --only disk,memory.swap\n\n\
    No file is written but the kernel's own. It ends with code 1 if anything could not be set.";

#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub host: HostArgs,
    /// Set it now
    #[arg(long, conflicts_with = "print_files")]
    pub apply: bool,
    /// Print the files for sysctl.d, udev, tmpfiles.d and systemd, each with its place
    #[arg(long)]
    pub print_files: bool,
    /// Only findings whose id is or begins with one of these
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub only: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        fn walk(command: &clap::Command, path: &str) {
            for sub in command.get_subcommands() {
                let path = format!("{path} {}", sub.get_name());
                let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                let example = format!("{path} ");
                let shown = help.contains(&example) || help.contains(path.as_str());
                assert!(shown, "`{path} --help` has no example");
                walk(sub, &path);
            }
        }
        walk(&Arguments::command(), "corelane");
    }

    #[test]
    fn a_state_that_there_is_not_is_refused() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        for line in ["corelane txn list --state Ongoing", "corelane group list --state stable"] {
            assert!(parse(line).is_ok(), "{line}");
        }
        let error = parse("corelane txn list --state ongoin").expect_err("no state").to_string();
        assert!(error.contains("similar value exists: 'ongoing'"), "{error}");
        assert!(parse("corelane group list --state ongoing").is_err());
    }

    /// Below 0 it is what producers without a transaction have in its place.
    #[test]
    fn a_transaction_begins_at_an_offset() {
        let parse = |offset: &str| {
            let line = format!("corelane txn abort --partition t:0 --start-offset={offset}");
            Arguments::try_parse_from(line.split(' ')).is_ok()
        };
        assert!(parse("0") && parse("120") && !parse("-1") && !parse("x"));
    }

    #[test]
    fn hyphenated_positions_and_lists_parse() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' ')).map(|a| a.command);
        let Ok(Command::Consume(args)) = parse("corelane consume t:0-2 --from -10 -b a,b:1") else {
            panic!("did not parse")
        };
        assert_eq!(args.from, Some(Position::Last(10)));
        assert_eq!(args.source.partitions, [0, 1, 2]);
        let ports: Vec<u16> = args.cluster.bootstrap.iter().map(|e| e.port).collect();
        assert_eq!(ports, [9092, 1]);
        let Ok(Command::Serve(args)) = parse("corelane serve --poll --shards 4") else {
            panic!("did not parse")
        };
        assert_eq!((args.poll, args.shards), (Some(100), Some(4)));
        assert_eq!(args.backend, Backend::Uring);
        let Ok(Command::Serve(args)) = parse("corelane serve --backend glommio") else {
            panic!("did not parse")
        };
        assert_eq!(args.backend, Backend::Glommio);
        assert!(parse("corelane serve --backend epoll").is_err());
        assert!(parse("corelane consume t --timeout 0").is_err());
    }
}
