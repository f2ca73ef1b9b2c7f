//! Sets what the doctor's findings ask for, and writes down how to keep it.
//!
//! Owns the order and the reading back: a value counts as set when the kernel shows it. Never: sets
//! what was fine already, writes a file that is not the kernel's, stops at the first refusal.

use std::fmt::Write as _;
use std::io;

use crate::disk::chosen;
use crate::doctor::{Finding, Fix, Known, Level, Persist};
use crate::host::Host;

/// What became of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub fix: Fix,
    /// Why it is not set, if so.
    pub refused: Option<String>,
}

/// What there is to set.
pub fn fixes(findings: &[Finding]) -> impl Iterator<Item = &Fix> {
    findings.iter().filter(|finding| finding.level != Level::Ok).flat_map(|f| f.fixes.iter())
}

/// Sets all of it and says of each value whether it is set now.
pub fn apply(host: &dyn Host, findings: &[Finding]) -> Vec<Applied> {
    let set = |fix: &Fix| Applied { fix: fix.clone(), refused: set(host, fix).err() };
    fixes(findings).map(set).collect()
}

fn set(host: &dyn Host, fix: &Fix) -> Result<(), String> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => "not permitted; run it as root".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => {
            "read-only here, as in a container; run it on the machine around it".to_owned()
        }
        // Interrupts that the kernel deals out itself.
        _ if fix.path.starts_with("/proc/irq/") && error.raw_os_error() == Some(libc::EIO) => {
            "the kernel deals this interrupt out itself".to_owned()
        }
        _ => crate::preflight::plain(&error),
    };
    host.set(&fix.path, &fix.value).map_err(refused)?;
    let shown = host.read(&fix.path).map_err(|error| crate::preflight::plain(&error))?;
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if chosen(&shown) == fix.value || words(&shown) == words(&fix.value) {
        return Ok(());
    }
    Err(format!("the kernel took it and still shows {shown}"))
}

/// A file for the operator to put somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedFile {
    pub path: &'static str,
    pub text: String,
}

/// What makes the wanted values, and those that are fine, come back after a boot.
pub fn files(findings: &[Finding]) -> Vec<PrintedFile> {
    let all = || findings.iter().flat_map(|finding| finding.fixes.iter());
    let mut sysctl = String::new();
    let mut udev = String::new();
    let mut tmpfiles = String::new();
    for fix in all() {
        let value = &fix.value;
        // Writing into a String cannot fail.
        let _ = match &fix.persist {
            Persist::Sysctl(key) => writeln!(sysctl, "{key} = {value}"),
            Persist::Udev { disk, attribute } => writeln!(
                udev,
                "ACTION==\"add|change\", SUBSYSTEM==\"block\", {}, ATTR{{{attribute}}}=\"{value}\"",
                matched(disk)
            ),
            Persist::Tmpfiles => writeln!(tmpfiles, "w {} - - - - {value}", fix.path),
            // Interrupts have other numbers after a boot.
            Persist::Nowhere => Ok(()),
        };
    }
    let files = [
        ("/etc/sysctl.d/90-corelane.conf", sysctl),
        ("/etc/udev/rules.d/90-corelane.rules", udev),
        ("/etc/tmpfiles.d/corelane.conf", tmpfiles),
        ("/etc/systemd/system/corelane.service.d/limits.conf", SERVICE.to_owned()),
    ];
    let used = files.into_iter().filter(|(_, text)| !text.is_empty());
    used.map(|(path, text)| PrintedFile { path, text }).collect()
}

/// The disk's own mark and not its partitions', which inherit their parents'.
fn matched(disk: &Known) -> String {
    match &disk.identity {
        Some((key, value)) => format!("ENV{{DEVTYPE}}==\"disk\", ATTRS{{{key}}}==\"{value}\""),
        None => format!("KERNEL==\"{}\"", disk.name),
    }
}

/// A soft limit below the hard one would do: the broker raises it.
const SERVICE: &str = "[Service]\nLimitNOFILE=1048576\nLimitMEMLOCK=infinity\n";
