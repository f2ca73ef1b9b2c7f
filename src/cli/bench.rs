//! `corelane bench`: measurements, made in `benches/`. Here is only the way from flags to them and from
//! what they found to the terminal and to files.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use disk_bench::broker::{self, Loads, OnDisk, Setup, SideBySide};
use disk_bench::{Ceilings, Emulation, Part, Place, Plan, Preset, Stop};
use hardware::parse_size;
use reactor::Either;

use super::args::BenchDiskArgs;
use super::shown::{Lines, Shown};
use crate::error::{Error, Exit, Result, note, say};

pub fn disk(args: &BenchDiskArgs) -> Result<()> {
    let places: Vec<Place> =
        args.dirs.iter().map(|dir| Place::of(dir).map_err(refused)).collect::<Result<_>>()?;
    let plan = plan(args)?;
    let preset = args.emulate.as_deref().map(Preset::named).transpose().map_err(refused)?;
    // What cannot be kept is said now and not after minutes.
    let profiles = profile_files(args)?;
    let folder = args.report.as_deref().map(report_folder).transpose()?;
    let label = preset.as_ref().map(Preset::label);
    let emulation = match &preset {
        Some(preset) => {
            let disks: Vec<_> = places.iter().flat_map(|place| &place.disks).collect();
            Some(Emulation::start(preset, &disks).map_err(refused)?)
        }
        None => None,
    };
    let stop = stop_on_signals()?;
    let (started, began) = (rig::report::conditions::now(), Instant::now());
    let label = label.as_deref();
    let mut found = Found::default();
    let outcome = measure(args, &places, &plan, (label, &stop), &mut found);
    // Files are written at full speed again.
    drop(emulation);
    let saved = save(&profiles, &places, &found.ceilings, &plan, label);
    if let Some(folder) = folder.filter(|_| !found.ceilings.is_empty()) {
        let mut report = report(&places, &found, label);
        (report.started, report.seconds) = (started, began.elapsed().as_secs_f64());
        if let Err(error) = &outcome {
            report.ended_early = Some(error.to_string());
        }
        folder.write_report(&report).map_err(|error| refused(error.into()))?;
        note(format_args!("report in {}", folder.path().display()));
    }
    outcome.and(saved)
}

/// What there is so far; an error later on does not take it away.
#[derive(Default)]
struct Found {
    /// In the order of the directories.
    ceilings: Vec<Ceilings>,
    together: Option<disk_bench::Together>,
    brokers: Brokers,
}

fn measure(
    args: &BenchDiskArgs,
    places: &[Place],
    plan: &Plan,
    (label, stop): (Option<&str>, &Stop),
    found: &mut Found,
) -> Result<()> {
    let stopped = || Err(Error::refused("stopped by a signal", "what was measured is above"));
    for place in places {
        let measured = disk_bench::measure(&place.dir, plan, stop, progress());
        clear_progress();
        let measured = measured.map_err(refused)?;
        say_lines(&disk_bench::ceilings_text(place, &measured, label));
        found.ceilings.push(measured);
        if stop.requested() {
            return stopped();
        }
    }
    let dirs: Vec<PathBuf> = places.iter().map(|place| place.dir.clone()).collect();
    if dirs.len() > 1 {
        found.together = disk_bench::measure_together(&dirs, plan, stop).map_err(refused)?;
    }
    if let Some(together) = &found.together {
        say_lines(&disk_bench::together_text(places, together, label));
    }
    if args.broker && !stop.requested() {
        brokers(args, places, &found.ceilings, (label, stop), &mut found.brokers)?;
    }
    if stop.requested() { stopped() } else { Ok(()) }
}

fn report(places: &[Place], found: &Found, label: Option<&str>) -> rig::report::Report {
    let parts = places.iter().zip(&found.ceilings);
    let parts: Vec<Part<'_>> = parts.map(|(place, found)| Part { place, found, label }).collect();
    let together = found.together.as_ref();
    let mut report = disk_bench::report(std::env::args().collect(), &parts, together);
    for (part, on_disk) in parts.iter().zip(&found.brokers.on_disks) {
        broker::add_to(&mut report, part.place, part.found, on_disk, label);
    }
    if let Some(side_by_side) = &found.brokers.side_by_side {
        broker::add_together(&mut report, side_by_side, label);
    }
    report
}

/// A folder that can be written to and holds no report yet.
fn report_folder(path: &Path) -> Result<rig::report::Folder> {
    if path.join("report.json").exists() {
        let what = format!("{} holds a report already", path.display());
        return Err(Error::config(what, "name another folder with --report"));
    }
    rig::report::Folder::create(path).map_err(|error| refused(error.into()))
}

/// Where the profiles go, each a file that can be made and is not there yet.
fn profile_files(args: &BenchDiskArgs) -> Result<Vec<PathBuf>> {
    let Some(file) = &args.save else { return Ok(Vec::new()) };
    let files: Vec<PathBuf> = match args.dirs.len() {
        1 => vec![file.clone()],
        count => (1..=count).map(|number| numbered(file, number)).collect(),
    };
    for path in &files {
        // Nothing is left of it where the measurement is ended by force.
        let made = std::fs::File::create_new(path).and_then(|_| std::fs::remove_file(path));
        made.map_err(|error| unsaved(path, &error))?;
    }
    Ok(files)
}

fn unsaved(path: &Path, error: &std::io::Error) -> Error {
    let what = format!("{}: {}", path.display(), crate::error::plain(error));
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::config(what, "name another file with --save"),
        _ => Error::machine(what, "name another file with --save"),
    }
}

#[derive(Default)]
struct Brokers {
    /// In the order of the directories.
    on_disks: Vec<Vec<OnDisk>>,
    side_by_side: Option<SideBySide>,
}

/// A broker on each disk, one after the other, and then all of them at the same time.
fn brokers(
    args: &BenchDiskArgs,
    places: &[Place],
    found: &[Ceilings],
    (label, stop): (Option<&str>, &Stop),
    brokers: &mut Brokers,
) -> Result<()> {
    let binary = std::env::current_exe().map_err(|error| {
        Error::machine(format!("this program: {}", crate::error::plain(&error)), "")
    })?;
    let free = places.iter().map(|place| place.free_bytes).min().unwrap_or(0);
    let setup = Setup { binary, shards: args.shards, port: args.port, room: room(free) };
    let loads = match args.quick {
        true => Loads::quick(args.seconds * 2),
        false => Loads::full(args.seconds * 5),
    };
    let tell = progress();
    for (place, ceilings) in places.iter().zip(found) {
        let on_disk = broker::measure(place, &setup, &loads, stop, &tell);
        clear_progress();
        let on_disk = on_disk.map_err(refused)?;
        say_lines(&broker::on_disk_text(place, ceilings, &on_disk, label));
        brokers.on_disks.push(on_disk);
        if stop.requested() {
            return Ok(());
        }
    }
    if places.len() > 1 {
        let together = broker::side_by_side(places, &setup, &loads, &tell);
        clear_progress();
        let together = together.map_err(refused)?;
        say_lines(&broker::side_by_side_text(&together, label));
        brokers.side_by_side = Some(together);
    }
    Ok(())
}

/// What a broker may keep on its disk at a time; retention is some seconds behind the load.
fn room(free: u64) -> u64 {
    const MOST: u64 = 4 << 30;
    const FREE_PART: u64 = 16;
    (free / FREE_PART).min(MOST)
}

fn plan(args: &BenchDiskArgs) -> Result<Plan> {
    let mut plan = match args.quick {
        true => Plan::quick(args.seconds),
        false => Plan::full(args.seconds),
    };
    if let Some(size) = &args.file_size {
        let bytes = parse_size(size);
        plan.file_bytes = Some(bytes.map_err(|error| Error::config(error, "see --help"))?);
    }
    Ok(plan)
}

/// A profile for each directory that was measured in full.
fn save(
    files: &[PathBuf],
    places: &[Place],
    found: &[Ceilings],
    plan: &Plan,
    label: Option<&str>,
) -> Result<()> {
    for (path, (place, found)) in files.iter().zip(places.iter().zip(found)) {
        if found.stopped {
            continue;
        }
        let profile = disk_bench::profile(place, found, plan, label.map(str::to_owned));
        let text = profile.and_then(|profile| Ok(profile.write()?)).map_err(refused)?;
        let file = std::fs::File::create_new(path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| unsaved(path, &error))?;
        note(format_args!("profile in {}", path.display()));
    }
    Ok(())
}

/// `a.toml` becomes `a-2.toml`.
fn numbered(file: &Path, number: usize) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let ending = file.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
    file.with_file_name(format!("{stem}-{number}{}", ending.unwrap_or_default()))
}

/// SIGINT and SIGTERM end what is measured after its requests in flight; a thread waits for them. The
/// second one ends the program at once, and its brokers with it: a disk that hangs holds nobody.
fn stop_on_signals() -> Result<Stop> {
    let stop = Stop::default();
    let told = stop.clone();
    let spec = reactor::ShardSpec { name: "signals".to_owned(), ..reactor::ShardSpec::default() };
    let (installed, ready) = mpsc::channel();
    let wait = move || async move {
        let tell = async {
            reactor::yield_now().await;
            // Whoever waits for it may be gone, which is the end of everything.
            let _ = installed.send(());
            std::future::pending::<()>().await;
        };
        if let Either::Left(Ok(_)) = reactor::race(reactor::signal::termination(), tell).await {
            told.request();
            if reactor::signal::termination().await.is_ok() {
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
        }
    };
    let ring = |error| refused(disk_bench::Error::Ring(error));
    // The thread ends with the process.
    let _thread = reactor::uring::spawn_shard(spec, wait).map_err(ring)?;
    // An error means that the thread has ended: then signals end the process as they always do.
    let _ = ready.recv();
    Ok(stop)
}

/// Models of disks and names of folders command no terminal.
fn say_lines(text: &str) {
    say(&Lines(text).to_string());
}

/// One line on a terminal that is written over; nothing elsewhere.
fn progress() -> impl Fn(&str) + Send + 'static {
    let shown = std::io::stderr().is_terminal();
    move |text: &str| {
        if shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", Shown(text));
        }
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn refused(error: disk_bench::Error) -> Error {
    match error {
        disk_bench::Error::Usage(what) => Error::config(what, ""),
        disk_bench::Error::Stopped => Error::refused(error, ""),
        other => Error::machine(other, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_several_disks_have_numbers() {
        assert_eq!(numbered(Path::new("x/a.toml"), 2), PathBuf::from("x/a-2.toml"));
        assert_eq!(numbered(Path::new("a"), 1), PathBuf::from("a-1"));
    }
}
