//! A fast disk held to a slower one's limits, by the control group of this process.
//!
//! Owns the group it makes: this process (and a broker that it starts) is in it until it is dropped,
//! then it goes. Both versions of control groups. Rates and request counts are limited; what a flush
//! costs, what seeking costs and how much a cache takes are the real disk's: so every figure of an
//! emulated disk carries its label.

use std::fs;
use std::path::{Path, PathBuf};

use hardware::{Disk, Hierarchy, Host as _, Rooted, hierarchies};

use crate::error::{Error, Result};

/// A kind of disk by its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub read_requests: u64,
    pub write_requests: u64,
}

/// A good drive on a 6 Gbit/s link.
const SATA_SSD: Preset = Preset {
    name: "sata-ssd",
    read_bytes: 550_000_000,
    write_bytes: 500_000_000,
    read_requests: 90_000,
    write_requests: 80_000,
};

/// 7,200 rpm, outer tracks. Every request counts as one with a seek, also each piece of one that the file
/// system cuts up: small ones in sequence, and large ones in a fragmented file, are slower than on a real
/// one.
const HDD: Preset = Preset {
    name: "hdd",
    read_bytes: 200_000_000,
    write_bytes: 190_000_000,
    read_requests: 200,
    write_requests: 200,
};

impl Preset {
    pub const ALL: [Preset; 2] = [SATA_SSD, HDD];

    pub fn named(name: &str) -> Result<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.name == name).ok_or_else(|| {
            let names = Preset::ALL.map(|preset| preset.name).join(" and ");
            Error::Usage(format!("no preset is called {name}; there are {names}"))
        })
    }

    /// For every output.
    pub fn label(&self) -> String {
        format!(
            "{}: at most {} MB/s and {} requests/s read, {} MB/s and {} requests/s written; flushes \
             are the real disk's",
            self.name,
            self.read_bytes / 1_000_000,
            self.read_requests,
            self.write_bytes / 1_000_000,
            self.write_requests
        )
    }
}

/// The limits are on as long as this lives.
#[derive(Debug)]
pub struct Emulation {
    group: PathBuf,
    /// Where this process came from.
    home: PathBuf,
}

const HINT: &str = "it needs root and a control group with the io (v2) or blkio (v1) controller that may \
                    be written to";

impl Emulation {
    pub fn start(preset: &Preset, disks: &[&Disk]) -> Result<Emulation> {
        let host = Rooted::here();
        let mut numbers: Vec<String> =
            disks.iter().filter_map(|disk| number(&host, disk)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            return Err(Error::Emulation("there is no block device below the directories".into()));
        }
        let mut reasons = Vec::new();
        let found = hierarchies(&host, "blkio");
        // Where both are mounted only one has the controller.
        for hierarchy in &found {
            match Self::in_hierarchy(hierarchy, preset, &numbers) {
                Ok(emulation) => return Ok(emulation),
                Err(reason) => reasons.push(reason),
            }
        }
        let reasons = match reasons.is_empty() {
            true => "no control groups are mounted".to_owned(),
            false => reasons.join("; "),
        };
        Err(Error::Emulation(format!("{reasons}; {HINT}")))
    }

    fn in_hierarchy(
        hierarchy: &Hierarchy,
        preset: &Preset,
        numbers: &[String],
    ) -> std::result::Result<Emulation, String> {
        let (inner, outer) = match (hierarchy.levels.first(), hierarchy.levels.last()) {
            (Some(inner), Some(outer)) => (Path::new(inner), Path::new(outer)),
            _ => return Err("a control group without a place".into()),
        };
        // In v2 a group with processes of its own can hold no limited ones, but for the outermost.
        let above = if hierarchy.unified { outer } else { inner };
        if hierarchy.unified {
            let file = above.join("cgroup.controllers");
            let offered = fs::read_to_string(&file).map_err(|error| said(&file, &error))?;
            if !offered.split_whitespace().any(|name| name == "io") {
                return Err(format!("{} has no io controller", above.display()));
            }
            write(&above.join("cgroup.subtree_control"), "+io")?;
        }
        let group = above.join(format!("corelane-bench-{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| said(&group, &error))?;
        // From here on the group goes when this does.
        let emulation = Emulation { group, home: inner.to_owned() };
        for number in numbers {
            for (file, text) in limits(hierarchy.unified, preset, number) {
                write(&emulation.group.join(file), &text)?;
            }
        }
        write(&emulation.group.join("cgroup.procs"), &std::process::id().to_string())?;
        Ok(emulation)
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // A broker that was started inside has ended by now; a group that cannot be removed does no harm.
        let _ = write(&self.home.join("cgroup.procs"), &std::process::id().to_string());
        let _ = fs::remove_dir(&self.group);
    }
}

/// File and content of each limit.
fn limits(unified: bool, preset: &Preset, number: &str) -> Vec<(String, String)> {
    let Preset { read_bytes, write_bytes, read_requests, write_requests, .. } = preset;
    if unified {
        let text = format!(
            "{number} rbps={read_bytes} wbps={write_bytes} riops={read_requests} \
             wiops={write_requests}"
        );
        return vec![("io.max".to_owned(), text)];
    }
    let table = [
        ("read_bps", read_bytes),
        ("write_bps", write_bytes),
        ("read_iops", read_requests),
        ("write_iops", write_requests),
    ];
    table
        .map(|(name, value)| (format!("blkio.throttle.{name}_device"), format!("{number} {value}")))
        .to_vec()
}

/// `259:0` of the whole disk.
fn number(host: &Rooted, disk: &Disk) -> Option<String> {
    host.read(&format!("/sys/block/{}/dev", disk.name)).ok()
}

fn write(path: &Path, text: &str) -> std::result::Result<(), String> {
    fs::write(path, text).map_err(|error| said(path, &error))
}

fn said(path: &Path, error: &std::io::Error) -> String {
    let text = error.to_string();
    format!(
        "{}: {}",
        path.display(),
        text.split(" (os error").next().unwrap_or(&text).to_lowercase()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_each_version_wants_them() {
        let v2 = limits(true, &SATA_SSD, "254:0");
        let text = "254:0 rbps=550000000 wbps=500000000 riops=90000 wiops=80000";
        assert_eq!(v2, [("io.max".to_owned(), text.to_owned())]);
        let v1 = limits(false, &HDD, "254:0");
        assert_eq!(v1.len(), 4);
        assert_eq!(v1[1].0, "blkio.throttle.write_bps_device");
        assert_eq!(v1[1].1, "254:0 190000000");
    }

    #[test]
    fn presets_have_names() {
        assert_eq!(Preset::named("hdd").unwrap(), HDD);
        assert!(Preset::named("floppy").unwrap_err().to_string().contains("sata-ssd and hdd"));
        assert!(SATA_SSD.label().contains("flushes are the real disk's"));
    }

    #[test]
    fn a_group_that_cannot_be_made_is_one_line() {
        let hierarchy = Hierarchy { unified: true, levels: vec!["/nothing/here".to_owned()] };
        let reason = Emulation::in_hierarchy(&hierarchy, &HDD, &["8:0".to_owned()]).unwrap_err();
        assert!(reason.starts_with("/nothing/here/cgroup.controllers: "), "{reason}");
        assert!(!reason.contains('\n') && !reason.contains("os error"));
    }
}
