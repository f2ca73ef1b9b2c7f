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
use crate::error::{Error, Result, note, say};

pub fn disk(args: &BenchDiskArgs) -> Result<()> {
    let places: Vec<Place> =
        args.dirs.iter().map(|dir| Place::of(dir).map_err(refused)).collect::<Result<_>>()?;
    let plan = plan(args)?;
    let preset = args.emulate.as_deref().map(Preset::named).transpose().map_err(refused)?;
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
    let mut found = Vec::new();
    for place in &places {
        let measured = disk_bench::measure(&place.dir, &plan, &stop, progress());
        clear_progress();
        let measured = measured.map_err(refused)?;
        say_lines(&disk_bench::ceilings_text(place, &measured, label));
        found.push(measured);
        if stop.requested() {
            break;
        }
    }
    let dirs: Vec<PathBuf> = places.iter().map(|place| place.dir.clone()).collect();
    let together = match stop.requested() || dirs.len() < 2 {
        true => None,
        false => disk_bench::measure_together(&dirs, &plan, &stop).map_err(refused)?,
    };
    if let Some(together) = &together {
        say_lines(&disk_bench::together_text(&places, together, label));
    }
    save(args, &places, &found, &plan, label)?;
    let brokers = match args.broker && !stop.requested() {
        true => brokers(args, &places, &found, label, &stop)?,
        false => Brokers::default(),
    };
    // Files are written at full speed again.
    drop(emulation);
    if let Some(folder) = &args.report {
        let parts: Vec<Part<'_>> =
            places.iter().zip(&found).map(|(place, found)| Part { place, found, label }).collect();
        let mut report = disk_bench::report(std::env::args().collect(), &parts, together.as_ref());
        for ((place, found), on_disk) in places.iter().zip(&found).zip(&brokers.on_disks) {
            broker::add_to(&mut report, place, found, on_disk, label);
        }
        if let Some(side_by_side) = &brokers.side_by_side {
            broker::add_together(&mut report, side_by_side, label);
        }
        (report.started, report.seconds) = (started, began.elapsed().as_secs_f64());
        if stop.requested() {
            report.ended_early = Some("stopped by a signal".to_owned());
        }
        let written = rig::report::Folder::create(folder).and_then(|f| f.write_report(&report));
        written.map_err(|error| refused(error.into()))?;
        note(format_args!("report in {}", folder.display()));
    }
    match stop.requested() {
        true => Err(Error::refused("stopped by a signal", "what was measured is above")),
        false => Ok(()),
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
    label: Option<&str>,
    stop: &Stop,
) -> Result<Brokers> {
    let binary = std::env::current_exe().map_err(|error| {
        Error::machine(format!("this program: {}", crate::error::plain(&error)), "")
    })?;
    let free = places.iter().map(|place| place.free_bytes).min().unwrap_or(0);
    let setup = Setup { binary, shards: args.shards, port: args.port, room: room(free) };
    let loads = match args.quick {
        true => Loads::quick(args.seconds * 2),
        false => Loads::full(args.seconds * 5),
    };
    let mut brokers = Brokers::default();
    let tell = progress();
    for (place, ceilings) in places.iter().zip(found) {
        let on_disk = broker::measure(place, &setup, &loads, stop, &tell);
        clear_progress();
        let on_disk = on_disk.map_err(refused)?;
        say_lines(&broker::on_disk_text(place, ceilings, &on_disk, label));
        brokers.on_disks.push(on_disk);
        if stop.requested() {
            return Ok(brokers);
        }
    }
    if places.len() > 1 {
        let together = broker::side_by_side(places, &setup, &loads, &tell);
        clear_progress();
        let together = together.map_err(refused)?;
        say_lines(&broker::side_by_side_text(&together, label));
        brokers.side_by_side = Some(together);
    }
    Ok(brokers)
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
    args: &BenchDiskArgs,
    places: &[Place],
    found: &[Ceilings],
    plan: &Plan,
    label: Option<&str>,
) -> Result<()> {
    let Some(file) = &args.save else { return Ok(()) };
    for (number, (place, found)) in places.iter().zip(found).enumerate() {
        if found.stopped {
            continue;
        }
        let path = if places.len() == 1 { file.clone() } else { numbered(file, number + 1) };
        let profile = disk_bench::profile(place, found, plan, label.map(str::to_owned));
        let text = profile.and_then(|profile| Ok(profile.write()?)).map_err(refused)?;
        std::fs::write(&path, text).map_err(|error| {
            let what = format!("{}: {}", path.display(), crate::error::plain(&error));
            Error::machine(what, "name another file with --save")
        })?;
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

/// SIGINT and SIGTERM end what is measured after its requests in flight; a thread waits for them.
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
