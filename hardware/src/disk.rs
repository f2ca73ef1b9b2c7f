//! Which file system a path is on, and which disks are below it.
//!
//! Owns the way from a path over the mount table to block devices, through partitions, device
//! mapper and software RAID, and what the kernel says of each disk. Never: writes, opens a device.

use std::path::Path;

use crate::host::Host;

/// How far device mapper and RAID may be stacked.
const STACK_MAX: usize = 8;

/// A line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub point: String,
    /// `/dev/sda1`, `server:/export`.
    pub source: String,
    pub file_system: String,
    /// Those of the mount and those of the file system, each once.
    pub options: Vec<String>,
    /// `259:1` of the block device; `0:…` where there is none.
    device: String,
}

impl Mount {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }

    /// The mount that holds `path`, which is absolute and without links.
    pub fn of(host: &dyn Host, path: &Path) -> Option<Mount> {
        let table = host.read("/proc/self/mountinfo").ok()?;
        let mounts = table.lines().filter_map(Mount::parse);
        // Of two on the same point the later one hides the earlier.
        mounts.filter(|mount| path.starts_with(&mount.point)).max_by_key(|m| m.point.len())
    }

    /// `id parent major:minor root point options [tags] - kind source super-options`
    fn parse(line: &str) -> Option<Mount> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let device = left.next()?.to_owned();
        let (_root, point, flags) = (left.next()?, left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, source) = (right.next()?, right.next()?);
        let mut options: Vec<String> = Vec::new();
        for option in flags.split(',').chain(right.next().unwrap_or("").split(',')) {
            if !option.is_empty() && !options.iter().any(|known| known == option) {
                options.push(option.to_owned());
            }
        }
        Some(Mount {
            point: unescape(point),
            source: unescape(source),
            file_system: kind.to_owned(),
            options,
            device,
        })
    }
}

/// Blanks and the like stand as three octal digits behind a backslash.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let digits = from.get(1..4).and_then(|octal| u8::from_str_radix(octal, 8).ok());
        out.push(digits.map_or('\\', char::from));
        rest = from.get(if digits.is_some() { 4 } else { 1 }..).unwrap_or("");
    }
    out + rest
}

/// What a disk is, as far as it decides how to set it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    Nvme,
    SataSsd,
    Hdd,
    /// Of a virtual machine: what is behind it only the host knows.
    Virtual,
    /// A volume that a provider serves over its network.
    NetworkVolume,
    Usb,
    /// A file, or memory, behind a block device.
    Loop,
    Other,
}

impl DiskKind {
    pub fn name(self) -> &'static str {
        match self {
            DiskKind::Nvme => "nvme",
            DiskKind::SataSsd => "sata-ssd",
            DiskKind::Hdd => "hdd",
            DiskKind::Virtual => "virtual",
            DiskKind::NetworkVolume => "network-volume",
            DiskKind::Usb => "usb",
            DiskKind::Loop => "loop",
            DiskKind::Other => "other",
        }
    }

    /// Whether it is no piece of hardware of this machine.
    pub fn is_virtual(self) -> bool {
        matches!(self, DiskKind::Virtual | DiskKind::NetworkVolume | DiskKind::Loop)
    }
}

/// One block device that is not made of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// `nvme0n1`, as in /sys/block.
    pub name: String,
    pub kind: DiskKind,
    pub model: Option<String>,
    pub size_bytes: Option<u64>,
    pub rotational: Option<bool>,
    pub scheduler: Option<String>,
    /// `write back` (volatile unless the device protects it) or `write through`.
    pub write_cache: Option<String>,
}

impl Disk {
    /// The disks that `mount` is made of, empty where there are none (network, memory, overlay).
    pub fn below(host: &dyn Host, mount: &Mount) -> Vec<Disk> {
        let by_number = host.resolve(&format!("/sys/dev/block/{}", mount.device));
        let by_name = || {
            let name = mount.source.strip_prefix("/dev/")?.rsplit('/').next()?;
            host.resolve(&format!("/sys/class/block/{name}")).ok()
        };
        let Some(device) = by_number.ok().or_else(by_name) else { return Vec::new() };
        let mut names = Vec::new();
        leaves(host, &whole_disk(host, &device), STACK_MAX, &mut names);
        names.iter().map(|name| Disk::look(host, name)).collect()
    }

    /// What the kernel says of the disk with this name.
    pub fn look(host: &dyn Host, name: &str) -> Disk {
        let read = |file: &str| host.read(&format!("/sys/block/{name}/{file}")).ok();
        let model = read("device/model").filter(|model| !model.is_empty());
        let rotational = read("queue/rotational").map(|text| text == "1");
        let path = host.resolve(&format!("/sys/block/{name}")).unwrap_or_default();
        Disk {
            kind: kind(name, &path, model.as_deref(), rotational),
            size_bytes: read("size").and_then(|n| n.parse::<u64>().ok()?.checked_mul(512)),
            scheduler: read("queue/scheduler").map(|text| chosen(&text).to_owned()),
            write_cache: read("queue/write_cache"),
            name: name.to_owned(),
            model,
            rotational,
        }
    }
}

/// `none [mq-deadline] kyber`: the one in brackets, or the only one.
pub(crate) fn chosen(text: &str) -> &str {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(chosen, _)| chosen)
}

/// A partition's folder lies in that of its disk.
fn whole_disk(host: &dyn Host, device: &str) -> String {
    let (above, name) = device.rsplit_once('/').unwrap_or(("", device));
    let of_partition = host.read(&format!("{device}/partition")).is_ok();
    let disk = if of_partition { above.rsplit('/').next().unwrap_or(name) } else { name };
    disk.to_owned()
}

fn leaves(host: &dyn Host, name: &str, depth: usize, out: &mut Vec<String>) {
    let slaves = host.list(&format!("/sys/block/{name}/slaves")).unwrap_or_default();
    if slaves.is_empty() || depth == 0 {
        if !out.iter().any(|known| known == name) {
            out.push(name.to_owned());
        }
        return;
    }
    for slave in slaves {
        let device = host.resolve(&format!("/sys/class/block/{slave}")).unwrap_or(slave);
        leaves(host, &whole_disk(host, &device), depth - 1, out);
    }
}

/// Hypervisors name themselves in the model of the disks they emulate.
const VIRTUAL_MODELS: [&str; 5] = ["QEMU", "VBOX", "VMware", "Virtual", "Msft"];
const NETWORK_MODELS: [&str; 3] = ["Amazon Elastic Block Store", "PersistentDisk", "nvme_card-pd"];

fn kind(name: &str, path: &str, model: Option<&str>, rotational: Option<bool>) -> DiskKind {
    let model_has = |words: &[&str]| model.is_some_and(|m| words.iter().any(|w| m.contains(w)));
    if model_has(&NETWORK_MODELS) || name.starts_with("rbd") || name.starts_with("nbd") {
        DiskKind::NetworkVolume
    } else if path.contains("/virtio") || name.starts_with("xvd") || model_has(&VIRTUAL_MODELS) {
        DiskKind::Virtual
    } else if name.starts_with("nvme") {
        DiskKind::Nvme
    } else if ["loop", "zram", "ram"].iter().any(|kind| name.starts_with(kind)) {
        DiskKind::Loop
    } else if path.contains("/usb") {
        DiskKind::Usb
    } else if name.starts_with("sd") {
        match rotational {
            Some(true) => DiskKind::Hdd,
            Some(false) => DiskKind::SataSsd,
            None => DiskKind::Other,
        }
    } else {
        DiskKind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines() {
        let line = "36 35 98:1 /x /mnt/a\\040b rw,noatime shared:1 - ext4 /dev/sdb1 rw,discard";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.point.as_str(), mount.device.as_str()), ("/mnt/a b", "98:1"));
        assert_eq!(mount.options, ["rw", "noatime", "discard"]);
        assert_eq!(Mount::parse("36 35 98:1 / /a rw"), None);
        assert_eq!(unescape("a\\x\\134"), "a\\x\\");
    }

    #[test]
    fn kinds_of_disks() {
        let pci = "/sys/devices/pci0000:00/0000:00:02.0";
        let table = [
            ("nvme0n1", "/nvme/nvme0", Some("SAMSUNG MZQL2"), Some(false), DiskKind::Nvme),
            ("nvme1n1", "", Some("Amazon Elastic Block Store"), None, DiskKind::NetworkVolume),
            ("sda", "/ata1/host0", Some("WDC WD40"), Some(true), DiskKind::Hdd),
            ("sda", "/ata1/host0", Some("CT1000MX500"), Some(false), DiskKind::SataSsd),
            ("sda", "/ata1/host0", Some("QEMU HARDDISK"), Some(true), DiskKind::Virtual),
            ("vda", "/virtio1/block/vda", None, Some(true), DiskKind::Virtual),
            ("sdb", "/usb2/2-1", None, Some(false), DiskKind::Usb),
            ("loop0", "", None, None, DiskKind::Loop),
        ];
        for (name, path, model, rotational, expected) in table {
            let path = format!("{pci}{path}");
            assert_eq!(kind(name, &path, model, rotational), expected, "{name}");
        }
        assert_eq!(chosen("none [mq-deadline] bfq"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }
}
