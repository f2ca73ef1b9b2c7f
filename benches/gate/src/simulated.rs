//! Instructions: broker and client in the simulator, under callgrind.
//!
//! The whole path runs on one thread: executor, sockets, frames, APIs, log, appender, replies. What
//! the simulated machine does itself (disk, network, clock) is not counted: callgrind stops counting
//! while it is in the simulator's driver. So the kernel's work is left out, and the io_uring driver
//! with it; [`crate::real`] counts system calls and allocations there.

use std::hint::black_box;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reactor::sim::{Delay, Outcome, World};

use crate::broker_side;
use crate::client::{self, Marks};
use crate::error::Error;
use crate::shape::Shape;

const SEED: u64 = 1;
const DATA_DIR: &str = "/data";
const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 9092);
/// Steady, so that a change of the code moves the figures and nothing else does.
const NETWORK_DELAY: Delay = Delay::exactly(Duration::from_micros(20));
const DISK_DELAY: Delay = Delay::exactly(Duration::from_micros(60));
/// More than any request or answer: nobody has to wait for the other's window.
const SOCKET_BYTES: usize = 8 << 20;

/// Functions at whose entry callgrind writes down what it has counted, by the end of their names.
const BEGIN: &str = "counting_begins";
const END: &str = "counting_ends";
/// Everything the simulated machine does happens in methods of this type.
const NOT_COUNTED: &str = "*SimDriver*";

/// valgrind counts a repeated string instruction once a byte, so the C library is told to copy and
/// fill in vectors, which cost about what they do outside.
const COPIES_COUNT: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824";

#[inline(never)]
fn counting_begins() {
    black_box(BEGIN);
}

#[inline(never)]
fn counting_ends() {
    black_box(END);
}

/// What runs under valgrind: every shape in turn, each on a machine of its own.
pub fn simulate(chosen: &[Shape]) -> Result<(), Error> {
    for shape in chosen {
        let mut world = World::new(SEED);
        world.faults().net.delay = NETWORK_DELAY;
        world.faults().net.socket_bytes = SOCKET_BYTES;
        world.faults().disk.latency = DISK_DELAY;
        let shape = *shape;
        match world.run(move || one(shape)) {
            Outcome::Finished(outcome) => outcome?,
            other => return Err(Error::Simulation(format!("{}: {other:?}", shape.name))),
        }
    }
    Ok(())
}

async fn one(shape: Shape) -> Result<(), Error> {
    let address = SocketAddr::from(LISTEN);
    let ready = Arc::new(AtomicBool::new(false));
    let broker = broker_side::start(address, Path::new(DATA_DIR), ready.clone()).await?;
    while !ready.load(Ordering::SeqCst) {
        if broker.is_finished() {
            return Err(Error::Broker(format!("{:?}", broker.await)));
        }
        reactor::sleep(Duration::from_millis(1)).await;
    }
    let marks = Marks { begin: counting_begins, end: counting_ends };
    client::run(&shape, address, shape.requests, marks).await
}

/// Instructions per request of each shape. Callgrind's files stay in `dir`, for callgrind_annotate.
pub fn count(chosen: &[Shape], dir: &Path) -> Result<Vec<(&'static str, f64)>, Error> {
    let program = std::env::current_exe().map_err(Error::io("finding this program"))?;
    let out = dir.join("callgrind.out");
    let mut command = Command::new("valgrind");
    command
        .env("GLIBC_TUNABLES", COPIES_COUNT)
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(format!("--dump-before=*{BEGIN}*"))
        .arg(format!("--dump-before=*{END}*"))
        .arg(format!("--toggle-collect={NOT_COUNTED}"))
        // In this order: the option above has it begin switched off.
        .arg("--collect-atstart=yes")
        .arg(program)
        .arg("simulate")
        .args(chosen.iter().map(|shape| shape.name));
    let ran = command.output().map_err(Error::io("starting valgrind"))?;
    if !ran.status.success() {
        let output = String::from_utf8_lossy(&ran.stderr);
        let end = output.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
        let output = output.get(end..).unwrap_or_default().to_owned();
        return Err(Error::Valgrind { status: ran.status.to_string(), output });
    }
    // Two dumps a shape: what came before the counting, and what was counted.
    let windows = (1..=chosen.len()).map(|number| number * 2);
    chosen
        .iter()
        .zip(windows)
        .map(|(shape, dump)| {
            let path = dir.join(format!("callgrind.out.{dump}"));
            let kept = dir.join(format!("callgrind.{}", shape.name));
            std::fs::rename(&path, &kept).map_err(Error::io(path.display().to_string()))?;
            let total = total_of(&kept)?;
            Ok((shape.name, total as f64 / shape.requests as f64))
        })
        .collect()
}

/// The instructions of a dump.
fn total_of(path: &Path) -> Result<u64, Error> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path.display().to_string()))?;
    let wrong = || Error::Wrong { what: "a dump of callgrind", detail: path.display().to_string() };
    if !text.lines().any(|line| line.starts_with("desc: Trigger:") && line.contains(END)) {
        return Err(wrong());
    }
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("totals:").or(line.strip_prefix("summary:")));
    total.and_then(|total| total.trim().parse().ok()).ok_or_else(wrong)
}

/// What valgrind calls its version; `None` if there is none.
pub fn valgrind_version() -> Option<String> {
    let ran = Command::new("valgrind").arg("--version").output().ok()?;
    let version = String::from_utf8(ran.stdout).ok()?;
    ran.status.success().then(|| version.trim().replacen("valgrind-", "valgrind ", 1))
}
