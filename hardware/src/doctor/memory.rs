//! How the kernel treats memory: swapping, huge pages, pages to be written.

use super::{Finding, Persist};
use crate::host::Host;
use crate::memory::memory_of;

/// Pages of others to be written that may gather before the kernel writes them all at once.
const DIRTY_MAX: u64 = 1 << 30;
const SWAPPINESS_MAX: u64 = 10;

pub(super) fn findings(host: &dyn Host) -> Vec<Finding> {
    vec![swapping(host), huge_pages(host), dirty(host)]
}

fn swapping(host: &dyn Host) -> Finding {
    const ID: &str = "memory.swap";
    const WHY: &str =
        "a shard that waits for its own memory to come back from a disk serves nobody";
    const PATH: &str = "/proc/sys/vm/swappiness";
    let swaps = host.read("/proc/swaps").unwrap_or_default();
    let areas = swaps.lines().skip(1).filter(|line| !line.trim().is_empty()).count();
    let present = match host.read(PATH) {
        Ok(present) => present,
        Err(error) => return Finding::unknown(ID, "", WHY, PATH, &error),
    };
    if areas == 0 {
        return Finding::ok(ID, "", WHY, format!("no swap (swappiness {present})"));
    }
    let words = format!("swappiness {present}, {areas} swap areas");
    let finding = Finding::ok(ID, "", WHY, words);
    let key = Persist::Sysctl("vm.swappiness".to_owned());
    if present.parse().is_ok_and(|value: u64| value <= SWAPPINESS_MAX) {
        return finding.keep(PATH, present, key);
    }
    finding.advice("swappiness 1").fix(PATH, "1", key)
}

fn huge_pages(host: &dyn Host) -> Finding {
    const ID: &str = "memory.huge_pages";
    const WHY: &str = "with `always` the kernel stops a thread to put huge pages together, and memory grows \
                       beyond what was asked for";
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    match host.read(PATH) {
        Ok(text) => {
            let present = crate::disk::chosen(&text);
            let finding = Finding::ok(ID, "", WHY, present);
            match present {
                "always" => finding.advice("madvise").fix(PATH, "madvise", Persist::Tmpfiles),
                _ => finding.keep(PATH, present, Persist::Tmpfiles),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Finding::ok(ID, "", WHY, "this kernel has none")
        }
        Err(error) => Finding::unknown(ID, "", WHY, PATH, &error),
    }
}

/// Corelane's records never are dirty pages, but those of others are written to the same disks.
fn dirty(host: &dyn Host) -> Finding {
    const ID: &str = "memory.dirty";
    const WHY: &str = "records go past the page cache, but what other programs gather there is written to \
                       the same disks, and much at once holds up everyone";
    let number = |name: &str| -> std::io::Result<u64> {
        let text = host.read(&format!("/proc/sys/vm/{name}"))?;
        text.parse().map_err(|_| std::io::ErrorKind::InvalidData.into())
    };
    let read = || -> std::io::Result<(u64, u64)> {
        Ok((number("dirty_background_bytes")?, number("dirty_background_ratio")?))
    };
    let (bytes, ratio) = match read() {
        Ok(read) => read,
        Err(error) => return Finding::unknown(ID, "", WHY, "vm.dirty_background_*", &error),
    };
    let total = memory_of(host).map_or(0, |memory| memory.total);
    let gathers = if bytes > 0 { bytes } else { total / 100 * ratio };
    let size = crate::format_size(gathers);
    let finding =
        Finding::ok(ID, "", WHY, format!("writing begins at about {size} of dirty pages"));
    if gathers <= DIRTY_MAX {
        return finding;
    }
    let sysctl = |key: &str| Persist::Sysctl(format!("vm.{key}"));
    let (some, most) = ((DIRTY_MAX / 4).to_string(), DIRTY_MAX.to_string());
    finding
        .advice("at most 1 GiB, where other programs write much")
        .fix("/proc/sys/vm/dirty_background_bytes", some, sysctl("dirty_background_bytes"))
        .fix("/proc/sys/vm/dirty_bytes", most, sysctl("dirty_bytes"))
}
