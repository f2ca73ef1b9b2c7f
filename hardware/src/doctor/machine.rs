//! What kind of machine this is: hardware, a virtual machine, a container; its clock.

use super::{Finding, Level};
use crate::host::Host;

/// Where this process runs, as far as the kernel lets on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The hypervisor's name, or what gave it away.
    pub hypervisor: Option<String>,
    /// What says that this is a container.
    pub container: Option<&'static str>,
    /// May set values of the kernel: effective user 0 with the capability for it.
    pub privileged: bool,
}

impl Setting {
    pub fn of(host: &dyn Host) -> Self {
        Setting {
            hypervisor: hypervisor(host),
            container: container(host),
            privileged: privileged(host),
        }
    }
}

fn hypervisor(host: &dyn Host) -> Option<String> {
    let read = |name: &str| host.read(&format!("/sys/class/dmi/id/{name}")).ok();
    let maker = [read("sys_vendor"), read("product_name")];
    let maker = maker.into_iter().flatten().collect::<Vec<_>>().join(" ");
    const MAKERS: [&str; 9] = [
        "QEMU",
        "KVM",
        "VMware",
        "VirtualBox",
        "Xen",
        "Microsoft Corporation Virtual Machine",
        "Google Compute Engine",
        "Amazon EC2",
        "OpenStack",
    ];
    let flagged = host.read("/proc/cpuinfo").is_ok_and(|text| {
        let mut flags = text.lines().filter(|line| line.starts_with("flags"));
        flags.next().is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
    });
    // A provider's own hardware has its name there too, so the CPU decides where it says anything.
    let named = MAKERS.iter().any(|name| maker.contains(name));
    let metal = maker.contains(".metal");
    if flagged || (named && !metal) {
        let maker = maker.trim();
        return Some(if maker.is_empty() { "unnamed hypervisor".into() } else { maker.into() });
    }
    None
}

fn container(host: &dyn Host) -> Option<&'static str> {
    let there = |path: &str| host.read(path).is_ok();
    if there("/.dockerenv") {
        return Some("Docker");
    }
    if there("/run/.containerenv") {
        return Some("Podman");
    }
    let groups = host.read("/proc/1/cgroup").unwrap_or_default();
    let words = [("kubepods", "Kubernetes"), ("docker", "Docker"), ("lxc", "LXC")];
    if let Some((_, name)) = words.iter().find(|(word, _)| groups.contains(word)) {
        return Some(name);
    }
    // With a control-group namespace the path says nothing; the root's file system still does.
    let root = crate::disk::Mount::of(host, std::path::Path::new("/"))?;
    (root.file_system == "overlay").then_some("a container, by its root file system")
}

fn privileged(host: &dyn Host) -> bool {
    const SYS_ADMIN: u32 = 21;
    let status = host.read("/proc/self/status").unwrap_or_default();
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let user = value("Uid:").and_then(|ids| ids.split_whitespace().nth(1));
    let capabilities = value("CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    user == Some("0") && capabilities.is_none_or(|set| set & (1 << SYS_ADMIN) != 0)
}

pub(super) fn findings(host: &dyn Host, setting: &Setting) -> Vec<Finding> {
    vec![kind(setting), rights(setting), clock(host)]
}

fn kind(setting: &Setting) -> Finding {
    const WHY: &str = "what a disk, a flush and a CPU really are is then the host's business, and \
                       neighbours may share them";
    let present = match (&setting.hypervisor, setting.container) {
        (None, None) => "a machine of its own, as far as the kernel tells".to_owned(),
        (Some(name), None) => format!("a virtual machine ({name})"),
        (None, Some(name)) => format!("a container ({name})"),
        (Some(vm), Some(name)) => format!("a container ({name}) in a virtual machine ({vm})"),
    };
    let finding = Finding::ok("host.kind", "", WHY, present);
    match setting.container {
        // Most of what is looked at belongs to the machine around it.
        Some(_) => finding.advice("run `corelane doctor` on the machine around the container too"),
        None => finding,
    }
}

fn rights(setting: &Setting) -> Finding {
    const WHY: &str = "only root may set what `corelane tune --apply` sets";
    let present = if setting.privileged { "root" } else { "no root, or without CAP_SYS_ADMIN" };
    Finding::ok("host.rights", "", WHY, present)
}

fn clock(host: &dyn Host) -> Finding {
    const ID: &str = "host.clock";
    const WHY: &str = "a shard asks for the time on every turn; a clock that the kernel must be asked \
                       for costs a microsecond each time";
    const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
    let present = match host.read(&format!("{FOLDER}/current_clocksource")) {
        Ok(present) => present,
        Err(error) => return Finding::unknown(ID, "", WHY, "the clock source", &error),
    };
    let finding = Finding::ok(ID, "", WHY, present.clone());
    if !matches!(present.as_str(), "hpet" | "acpi_pm" | "xen" | "jiffies" | "refined-jiffies") {
        return finding;
    }
    let offered = host.read(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
    let fast = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];
    match fast.iter().find(|fast| offered.split_whitespace().any(|one| one == **fast)) {
        Some(fast) => finding
            .advice(format!("{fast}, unless the kernel's log calls it unstable"))
            .command(format!("echo {fast} > {FOLDER}/current_clocksource"))
            .command(format!("kernel command line: clocksource={fast}")),
        None => Finding { level: Level::Advice, ..finding }
            .advice("tsc; this kernel does not offer it: see `dmesg | grep -i tsc`"),
    }
}
