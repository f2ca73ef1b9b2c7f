//! The data directories' file systems and the disks below them.

use std::path::{Path, PathBuf};

use super::{Finding, Known, Persist, quoted};
use crate::disk::{Disk, DiskKind, Mount};
use crate::host::Host;

/// Large writes should reach the device in one piece: the log writes up to this at once.
const WRITE_KIB: u64 = 1024;

pub(super) fn findings(host: &dyn Host, data_dirs: &[PathBuf]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for disk in disks_of(host, data_dirs, &mut findings) {
        findings.push(scheduler(host, &disk));
        findings.push(merges(host, &disk));
        findings.push(request_size(host, &disk));
        findings.push(write_cache(host, &disk));
    }
    findings
}

/// Each disk once, however many directories are on it. What is to say of the mounts is added.
fn disks_of(host: &dyn Host, data_dirs: &[PathBuf], findings: &mut Vec<Finding>) -> Vec<Disk> {
    let mut disks: Vec<Disk> = Vec::new();
    let mut mounts: Vec<Mount> = Vec::new();
    for path in data_dirs {
        let Some(mount) = Mount::of(host, path) else {
            findings.push(no_mount(path));
            continue;
        };
        let below = Disk::below(host, &mount);
        findings.push(device(path, &mount, &below));
        if !mounts.contains(&mount) {
            findings.push(file_system(&mount));
            findings.push(options(&mount));
            mounts.push(mount);
        }
        for disk in below {
            if !disks.contains(&disk) {
                disks.push(disk);
            }
        }
    }
    disks
}

fn no_mount(path: &Path) -> Finding {
    let error = std::io::Error::from(std::io::ErrorKind::NotFound);
    let (id, why) = ("disk.device", "the disk decides what can be tuned");
    Finding::unknown(id, path.display().to_string(), why, "the mount table", &error)
}

fn device(path: &Path, mount: &Mount, disks: &[Disk]) -> Finding {
    const WHY: &str = "two data directories on one disk share its speed and its end";
    let describe = |disk: &Disk| {
        let model = disk.model.as_ref().map_or(String::new(), |model| format!(" {model}"));
        let size = disk.size_bytes.map_or(String::new(), |n| format!(" {}", crate::format_size(n)));
        format!("{} ({}{model}{size})", disk.name, disk.kind.name())
    };
    let below: Vec<String> = disks.iter().map(describe).collect();
    let present = match below.as_slice() {
        [] => format!("{} of {}: no disk of this machine", mount.file_system, mount.source),
        _ => format!("{} on {}", mount.source, below.join(", ")),
    };
    let finding = Finding::ok("disk.device", path.display().to_string(), WHY, present);
    match disks {
        [] if matches!(mount.file_system.as_str(), "tmpfs" | "ramfs" | "overlay") => {
            finding.problem("a disk: what is written here goes with the container or the boot")
        }
        [] => finding.advice("a local disk: over a network a flush takes as long as it pleases"),
        _ if disks.iter().any(|disk| disk.kind == DiskKind::Usb) => {
            finding.advice("a disk that is not on USB")
        }
        _ => finding,
    }
}

fn file_system(mount: &Mount) -> Finding {
    const WHY: &str = "appending changes file sizes; on ext4 its one journal makes writers wait for each \
                       other, which shows in p99.9, on XFS hardly";
    let kind = mount.file_system.as_str();
    let finding = Finding::ok("disk.file_system", mount.point.clone(), WHY, kind);
    match kind {
        "xfs" => finding,
        "ext4" if mount.point == "/" => finding.advice("a disk of its own with xfs for the data"),
        // No command: it would empty a file system that others may use too.
        "ext4" => finding.advice("xfs, where the disk holds nothing else and can be made anew"),
        _ => finding.advice("xfs, or ext4"),
    }
}

fn options(mount: &Mount) -> Finding {
    const ID: &str = "disk.mount";
    const WHY: &str = "discards go between writes, access times are writes, and without barriers a sync \
                       promises nothing";
    let shown: Vec<&str> = mount.options.iter().map(String::as_str).collect();
    let finding = Finding::ok(ID, mount.point.clone(), WHY, shown.join(","));
    let unsafe_ones = ["nobarrier", "barrier=0", "data=journal", "norecovery", "ro"];
    let remount = |options: &str| format!("mount -o remount,{options} {}", quoted(&mount.point));
    if let Some(bad) = unsafe_ones.iter().find(|option| mount.has(option)) {
        let problem = finding.problem(format!("without {bad}"));
        return match *bad {
            // XFS has no such option.
            "nobarrier" | "barrier=0" if mount.file_system.starts_with("ext") => {
                problem.command(remount("barrier=1"))
            }
            "ro" => problem.command(remount("rw")),
            _ => problem.command(format!("take {bad} out of /etc/fstab and mount it again")),
        };
    }
    let mut wanted = Vec::new();
    if !mount.has("noatime") {
        wanted.push("noatime");
    }
    let discards = mount.has("discard") && mount.file_system != "btrfs";
    if discards {
        wanted.push("nodiscard");
    }
    if wanted.is_empty() {
        return finding;
    }
    let wanted = wanted.join(",");
    let finding = finding
        .advice(wanted.clone())
        .command(remount(&wanted))
        .command(format!("/etc/fstab: add {wanted} to the options of {}", quoted(&mount.point)));
    match discards {
        true => finding.command("systemctl enable --now fstrim.timer"),
        false => finding,
    }
}

fn scheduler(host: &dyn Host, disk: &Disk) -> Finding {
    const ID: &str = "disk.scheduler";
    const WHY: &str = "Corelane orders its own requests by class; a second queue below costs CPU and adds \
                       waiting, but for a disk with heads, which wants them sorted";
    let path = format!("/sys/block/{}/queue/scheduler", disk.name);
    let offered = match host.read(&path) {
        Ok(offered) => offered,
        Err(error) => return Finding::unknown(ID, &*disk.name, WHY, &path, &error),
    };
    let present = crate::disk::chosen(&offered);
    let fine: &[&str] = match disk.kind {
        DiskKind::Hdd | DiskKind::Usb => &["mq-deadline", "bfq"],
        DiskKind::SataSsd | DiskKind::Other => &["none", "mq-deadline"],
        DiskKind::Nvme | DiskKind::Virtual | DiskKind::NetworkVolume | DiskKind::Loop => &["none"],
    };
    let finding = Finding::ok(ID, &*disk.name, WHY, present);
    let names = offered.split_whitespace().map(|name| name.trim_matches(['[', ']']));
    let best = fine.iter().find(|fine| names.clone().any(|name| name == **fine));
    match best {
        _ if fine.contains(&present) => {
            finding.keep(path, present, udev(host, disk, "queue/scheduler"))
        }
        Some(best) => finding.advice(*best).fix(path, *best, udev(host, disk, "queue/scheduler")),
        None => finding.advice(format!("{}; this kernel offers {offered}", fine.join(" or "))),
    }
}

fn merges(host: &dyn Host, disk: &Disk) -> Finding {
    const ID: &str = "disk.nomerges";
    const WHY: &str = "logs are written in large pieces already; looking for requests to merge with costs \
                       CPU on each and finds next to none";
    let path = format!("/sys/block/{}/queue/nomerges", disk.name);
    let present = match host.read(&path) {
        Ok(present) => present,
        Err(error) => return Finding::unknown(ID, &*disk.name, WHY, &path, &error),
    };
    let words = match present.as_str() {
        "0" => "0 (all merges are tried)",
        "1" => "1 (simple merges only)",
        "2" => "2 (none)",
        other => other,
    };
    let finding = Finding::ok(ID, &*disk.name, WHY, words);
    match (disk.kind, present.as_str()) {
        (DiskKind::Nvme, "0") => {
            finding.advice("1").fix(path, "1", udev(host, disk, "queue/nomerges"))
        }
        (DiskKind::Nvme, _) => finding.keep(path, present, udev(host, disk, "queue/nomerges")),
        _ => finding,
    }
}

fn request_size(host: &dyn Host, disk: &Disk) -> Finding {
    const ID: &str = "disk.request_size";
    const WHY: &str =
        "the log writes up to 1 MiB at once; what is larger than this the kernel cuts up";
    let folder = format!("/sys/block/{}/queue", disk.name);
    let path = format!("{folder}/max_sectors_kb");
    let number = |path: &str| host.read(path).map(|text| text.parse::<u64>().unwrap_or(0));
    let present = match number(&path) {
        Ok(present) => present,
        Err(error) => return Finding::unknown(ID, &*disk.name, WHY, &path, &error),
    };
    let most = number(&format!("{folder}/max_hw_sectors_kb")).unwrap_or(present);
    let finding = Finding::ok(ID, &*disk.name, WHY, format!("{present} KiB"));
    let wanted = most.min(WRITE_KIB);
    if present >= wanted {
        return finding;
    }
    let wanted = wanted.to_string();
    finding.advice(format!("{wanted} KiB")).fix(
        path,
        wanted,
        udev(host, disk, "queue/max_sectors_kb"),
    )
}

fn write_cache(host: &dyn Host, disk: &Disk) -> Finding {
    const ID: &str = "disk.write_cache";
    const WHY: &str = "with flush.messages=1 every acknowledgement waits until this cache is safe; with \
                       power-loss protection that costs nothing";
    let path = format!("/sys/block/{}/queue/write_cache", disk.name);
    let present = match host.read(&path) {
        Ok(present) => present,
        Err(error) => return Finding::unknown(ID, &*disk.name, WHY, &path, &error),
    };
    let told = match (present.as_str(), disk.kind.is_virtual()) {
        ("write back", false) => {
            "write back: volatile, emptied by each flush. Whether capacitors protect it the kernel does \
             not know; the data sheet (\"power loss protection\") does"
        }
        ("write through", false) => {
            "write through: no volatile cache, or one that the drive protects; a flush is nearly free"
        }
        ("write back", true) => {
            "write back: the host behind it is asked to flush; whether it does is the host's to say"
        }
        ("write through", true) => {
            "write through, says the host behind it; whether that survives its power cut is its to say"
        }
        (other, _) => other,
    };
    let finding = Finding::ok(ID, &*disk.name, WHY, told);
    match (present.as_str(), disk.kind) {
        // The kernel was told to believe that a drive needs no flush.
        ("write through", DiskKind::SataSsd | DiskKind::Hdd) => {
            let drive =
                format!("hdparm -W /dev/{}   # must say 0, or the drive has protection", disk.name);
            finding.advice("sure that the drive itself agrees").command(drive)
        }
        _ => finding,
    }
}

fn udev(host: &dyn Host, disk: &Disk, attribute: &str) -> Persist {
    let read = |file: &str| host.read(&format!("/sys/block/{}/{file}", disk.name)).ok();
    // An NVMe and a virtio disk have theirs beside them, a SCSI one at its device.
    let identity = [("wwid", "wwid"), ("wwid", "device/wwid"), ("serial", "serial")]
        .into_iter()
        .find_map(|(key, file)| Some((key, read(file).filter(|value| can_be_matched(value))?)));
    let disk = Known { name: disk.name.clone(), identity };
    Persist::Udev { disk, attribute: attribute.to_owned() }
}

/// Whether it can stand in a rule as it is: without quotes and the signs of patterns.
fn can_be_matched(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || " ._-:+/".contains(c);
    !value.is_empty() && value.chars().all(plain)
}
