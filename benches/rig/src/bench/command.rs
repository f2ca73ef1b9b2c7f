//! `corelane bench`: its flags, the rows that they ask for, and the folder that the report goes to.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::broker::{self, Known};
use super::file;
use super::progress::Progress;
use super::rows::{self, Source};
use super::run::{self, Site};
use super::workload::Workload;
use crate::error::{Error, Result};
use crate::procfs;
use crate::report::{Folder, Machine, Named, Report, Tool, markdown};

/// Besides those of a workload, which win over its file.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Workloads that come with the program (--list) or files; one after the other
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// The broker; any node of a cluster
    #[arg(long, short = 'b', value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    /// Process of a broker on this machine, for its processor time and memory
    #[arg(long, value_name = "PID", alias = "pid")]
    pub broker_pid: Option<u32>,
    /// A data directory of a broker on this machine, for its disk's properties; repeat it for
    /// several
    #[arg(long, value_name = "DIR")]
    pub data_dir: Vec<PathBuf>,
    /// Where report.json, report.md and the histograms go, a folder without a report
    /// [default: ./corelane-bench-<time>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Name the workloads that come with the program
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    pub knobs: Knobs,
}

/// Flags with the names that files have, all of them text until they are read as a file's would be.
#[derive(Debug, Clone, Default)]
pub struct Knobs(Vec<(String, String)>);

impl FromArgMatches for Knobs {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut knobs = Knobs::default();
        knobs.update_from_arg_matches(matches)?;
        Ok(knobs)
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        for knob in file::KNOBS {
            let given = matches.get_many::<String>(knob.name).into_iter().flatten();
            self.0.extend(given.map(|text| (knob.name.to_owned(), text.clone())));
        }
        Ok(())
    }
}

impl Args for Knobs {
    fn augment_args(command: Command) -> Command {
        file::KNOBS.iter().fold(command, |command, knob| {
            let repeated = knob.name == "topic-config";
            let action = if repeated { ArgAction::Append } else { ArgAction::Set };
            let arg = Arg::new(knob.name).long(knob.name).value_name(knob.value).help(knob.help);
            command.arg(arg.action(action).allow_hyphen_values(true).help_heading("Workload"))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// What a run says at its end.
#[derive(Debug)]
pub struct Done {
    /// For stdout.
    pub text: String,
    pub folder: PathBuf,
    pub failures: usize,
    pub ended_early: bool,
}

/// For `--list`.
pub fn list() -> Result<String> {
    let mut text = String::new();
    for (name, _) in file::BUILT_IN {
        let workload = file::workload(file::find(name)?)?;
        text += &format!("{name}\n    {}\n", workload.title);
    }
    Ok(text)
}

/// Measures everything that was asked for; ends early, with what there is, once `stop` is set.
///
/// # Errors If nothing could be measured: a workload that cannot be, a broker that does not answer.
/// What fails later stands in the report.
pub fn run(args: &BenchArgs, command: Vec<String>, stop: &AtomicBool) -> Result<Done> {
    if let Some(out) = args.out.as_ref().filter(|out| out.join("report.json").exists()) {
        let out = out.display();
        return Err(Error::Usage(format!("--out {out}: there is a report already; name another")));
    }
    let workloads = workloads(args)?;
    let begun = Instant::now();
    if let Some(pid) = args.broker_pid {
        let gone = |_| Error::Usage(format!("--broker-pid {pid}: there is no such process"));
        procfs::cpu_seconds(pid).map_err(gone)?;
    }
    let at = address(&args.bootstrap)?;
    let known = Known::ask(at)?;
    raise_files();
    let mut report = begin(args, command, &known, &workloads);
    let name = format!("corelane-bench-{}", report.started.replace(':', ""));
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from(name));
    let folder = Folder::create(&path)?;
    let site = Site {
        known: &known,
        broker_pid: args.broker_pid,
        stop,
        run: format!("{}-{:x}", std::process::id(), begun_token()),
    };
    let mut progress = Progress::new();
    let mut number = 0;
    for workload in &workloads {
        let rates = workload.rate.0.iter().copied().map(Some);
        let rates: Vec<_> = if workload.rate.is_max() { vec![None] } else { rates.collect() };
        for rate in rates {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut one = Rate { workload, rate, site: &site, folder: &folder, number };
            one.measure(&mut report, &mut progress)?;
            number = one.number;
            rows::mark_knees(&mut report.rows);
            report.seconds = begun.elapsed().as_secs_f64();
            folder.write_report(&report)?;
        }
    }
    progress.end();
    if stop.load(Ordering::Relaxed) {
        report.ended_early = Some("Ctrl-C".to_owned());
    }
    report.seconds = begun.elapsed().as_secs_f64();
    folder.write_report(&report)?;
    Ok(Done {
        text: markdown::text(&report),
        folder: path,
        failures: report.failures.len(),
        ended_early: report.ended_early.is_some(),
    })
}

/// One rate of one workload, as often as it is to be repeated.
struct Rate<'a> {
    workload: &'a Workload,
    rate: Option<f64>,
    site: &'a Site<'a>,
    folder: &'a Folder,
    number: usize,
}

impl Rate<'_> {
    fn measure(&mut self, report: &mut Report, progress: &mut Progress) -> Result<()> {
        let mut measured = Vec::with_capacity(self.workload.repeats);
        let mut durability = String::new();
        for repeat in 1..=self.workload.repeats {
            let rate = self.rate.map_or_else(|| "maximum".to_owned(), |r| format!("{r} records/s"));
            let of = self.workload.repeats;
            let what = format!("{}, {rate}, {repeat} of {of}", self.workload.name);
            progress.begin(what.clone());
            self.number += 1;
            let seen = &mut |topic: &str| {
                let configs = broker::topic_configs(self.site.known.at, topic).unwrap_or_default();
                durability = broker::durability(&self.site.known.broker, &configs, self.workload);
            };
            match run::measure(self.site, self.workload, self.rate, self.number, seen, progress) {
                Ok(one) => measured.push(one),
                Err(error) => {
                    if !self.site.stop.load(Ordering::Relaxed) {
                        report.failures.push(format!("{what}: {error}"));
                    }
                    break;
                }
            }
            if self.site.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        // A load that was stopped while it warmed up has measured nothing.
        measured.retain(|one| one.recorder.window.until > one.recorder.window.from);
        let (workload, rate) = (self.workload, self.rate);
        // Files are named after it.
        let id = unique(&rows::id(workload, rate), report);
        let source = Source { id, workload, rate, durability, measured: &measured };
        report.rows.extend(rows::row(&source, self.folder)?);
        Ok(())
    }
}

fn unique(id: &str, report: &Report) -> String {
    let taken = |id: &str| report.rows.iter().any(|row| row.id == id);
    let mut candidate = id.to_owned();
    let mut number = 2;
    while taken(&candidate) {
        candidate = format!("{id}-{number}");
        number += 1;
    }
    candidate
}

fn workloads(args: &BenchArgs) -> Result<Vec<Workload>> {
    let mut tables = match args.workloads.as_slice() {
        [] => vec![toml::Table::new()],
        names => names.iter().map(|name| file::find(name)).collect::<Result<_>>()?,
    };
    for table in &mut tables {
        for (name, text) in &args.knobs.0 {
            file::set(table, name, text)?;
        }
    }
    tables.into_iter().map(file::workload).collect()
}

fn begin(args: &BenchArgs, command: Vec<String>, known: &Known, all: &[Workload]) -> Report {
    let data: Vec<_> = args.data_dir.iter().map(PathBuf::as_path).collect();
    let title = match all {
        [one] => format!("{} on {}", one.shown(), known.broker.name),
        many => format!("{} workloads on {}", many.len(), known.broker.name),
    };
    let tool = Tool::here("corelane bench");
    let mut report = Report::new(tool, &title, command, Machine::here(&data));
    report.brokers = vec![known.broker.clone()];
    report.conditions = vec![
        Named::new("limits of the client", procfs::limits()),
        Named::new(
            "requests",
            format!("Produce v{}, Fetch v{}", known.produce_version, known.fetch_version),
        ),
        Named::new("load averages at the start", procfs::load_average()),
    ];
    report
}

fn address(text: &str) -> Result<SocketAddr> {
    let with_port = if text.contains(':') { text.to_owned() } else { format!("{text}:9092") };
    let found = with_port.to_socket_addrs().map_err(Error::io(format!("look up {text}")))?;
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort_by_key(|address| !address.is_ipv4());
    found.first().copied().ok_or_else(|| Error::Usage(format!("{text} has no address")))
}

/// Thousands of connections need as many descriptors; what is not allowed shows when they are
/// opened.
fn raise_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn begun_token() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs() & 0xff_ffff
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    #[test]
    fn a_report_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("report.json"), "{}").unwrap();
        let out = dir.path().display().to_string();
        let args = Line::parse_from(["bench", "--bootstrap", "127.0.0.1:1", "--out", &out]).bench;
        let refused = run(&args, Vec::new(), &AtomicBool::new(false));
        let Err(Error::Usage(text)) = refused else { panic!("it was taken") };
        assert!(text.contains("there is a report already"), "{text}");
    }
}
