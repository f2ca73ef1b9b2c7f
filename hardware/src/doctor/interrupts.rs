//! Which CPUs take the interrupts of the disks and the network cards.

use std::path::PathBuf;

use super::{Finding, Persist};
use crate::disk::{Disk, Mount};
use crate::host::{Host, format_list, parse_list};

/// Levels from a device up to the bus slot that owns its interrupts.
const CLIMB_MAX: usize = 4;
/// Interrupts of one device that are looked at: more than any card has queues.
const IRQS_MAX: usize = 1024;
/// An interrupt that comes less often than the busiest by this factor is no queue in use.
const QUIET_PART: u64 = 100;
const WHY: &str = "each CPU runs a shard: where one CPU takes all interrupts of a card, its shard is slower \
                   than the others";

pub(super) fn findings(host: &dyn Host, data_dirs: &[PathBuf], cpus: &[usize]) -> Vec<Finding> {
    let mut devices: Vec<(&'static str, String, String)> = Vec::new();
    let mounts = data_dirs.iter().filter_map(|path| Mount::of(host, path));
    for disk in mounts.flat_map(|mount| Disk::below(host, &mount)) {
        let device = ("irq.disk", disk.name.clone(), format!("/sys/block/{}", disk.name));
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    for name in host.list("/sys/class/net").unwrap_or_default() {
        // Those without hardware have no `device`.
        if host.resolve(&format!("/sys/class/net/{name}/device")).is_ok() {
            devices.push(("irq.network", name.clone(), format!("/sys/class/net/{name}/device")));
        }
    }
    let table = host.read("/proc/interrupts").unwrap_or_default();
    let mut findings: Vec<Finding> = devices
        .iter()
        .map(|(id, name, path)| of_device(host, (id, name), path, &table, cpus))
        .collect();
    findings.push(balancer(host));
    findings
}

/// One interrupt line of a device's queue.
struct Irq {
    number: u32,
    /// How often it came since the boot.
    count: u64,
    cpus: Vec<usize>,
}

fn of_device(
    host: &dyn Host,
    (id, name): (&'static str, &str),
    path: &str,
    table: &str,
    cpus: &[usize],
) -> Finding {
    let numbers = numbers_of(host, path, name, table);
    let mut busy: Vec<Irq> = numbers.iter().filter_map(|&irq| queue(host, irq, table)).collect();
    // Slots for changes of configuration come now and then; queues make up all the rest.
    let most = busy.iter().map(|irq| irq.count).max().unwrap_or(0);
    busy.retain(|irq| irq.count >= most / QUIET_PART);
    if busy.is_empty() {
        let present = match numbers.len() {
            0 => "no interrupts of its own that the kernel shows".to_owned(),
            count => format!("{count} interrupts, none used so far"),
        };
        return Finding::ok(id, name, WHY, present);
    }
    let shown = |irq: &Irq| format!("{}→{}", irq.number, format_list(&irq.cpus));
    let list: Vec<String> = busy.iter().take(8).map(shown).collect();
    let more = if busy.len() > 8 { format!(" and {} more", busy.len() - 8) } else { String::new() };
    let finding = Finding::ok(id, name, WHY, format!("interrupt→CPU {}{more}", list.join(" ")));
    if busy.len() == 1 || cpus.len() < 2 || !on_one_cpu(&busy) {
        return finding;
    }
    let mut finding = finding.advice("the queues spread over the CPUs");
    for (irq, cpu) in busy.iter().zip(cpus.iter().cycle()) {
        let path = format!("/proc/irq/{}/smp_affinity_list", irq.number);
        finding = finding.fix(path, cpu.to_string(), Persist::Nowhere);
    }
    finding
}

fn on_one_cpu(irqs: &[Irq]) -> bool {
    let mut all: Vec<usize> = irqs.iter().flat_map(|irq| irq.cpus.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all.len() == 1
}

/// The device's interrupts: those of its bus slot, or else those that carry its name.
fn numbers_of(host: &dyn Host, path: &str, name: &str, table: &str) -> Vec<u32> {
    let mut at = host.resolve(path).unwrap_or_default();
    let mut names = vec![name.to_owned()];
    for _ in 0..CLIMB_MAX {
        if let Ok(listed) = host.list(&format!("{at}/msi_irqs")) {
            return listed.iter().filter_map(|irq| irq.parse().ok()).take(IRQS_MAX).collect();
        }
        let Some((above, last)) = at.rsplit_once('/') else { break };
        if last.starts_with("virtio") {
            names.push(last.to_owned());
        }
        at = above.to_owned();
    }
    // `virtio1-req.0`, `eth0-rx-0`, `mlx5_comp0@pci:0000:01:00.0`
    let carries = |label: &str| {
        label.split(['-', '@', ':']).any(|part| names.iter().any(|name| part == name))
    };
    let lines = table.lines().filter_map(|line| {
        let (number, rest) = line.trim_start().split_once(':')?;
        carries(rest.split_whitespace().last()?).then_some(number.parse().ok()).flatten()
    });
    lines.take(IRQS_MAX).collect()
}

/// `None` of an interrupt that never came: slots for configuration and for queues that are not
/// used.
fn queue(host: &dyn Host, number: u32, table: &str) -> Option<Irq> {
    let prefix = format!("{number}:");
    let line = table.lines().find(|line| line.trim_start().starts_with(&prefix))?;
    let counts = line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
    let count = counts.fold(0, u64::saturating_add);
    if count == 0 {
        return None;
    }
    let read = |file: &str| host.read(&format!("/proc/irq/{number}/{file}")).ok();
    // What the hardware really uses, and else what it was asked to.
    let list = read("effective_affinity_list").filter(|text| !text.is_empty());
    let cpus = parse_list(&list.or_else(|| read("smp_affinity_list"))?)?;
    Some(Irq { number, count, cpus })
}

fn balancer(host: &dyn Host) -> Finding {
    const WHY: &str =
        "irqbalance moves interrupts between CPUs, and takes back what was set by hand";
    let running = super::limits::processes(host).any(|(_, name)| name == "irqbalance");
    let present = if running { "irqbalance runs" } else { "no irqbalance" };
    let finding = Finding::ok("irq.balance", "", WHY, present);
    match running {
        true => finding
            .advice("none, where interrupts are set by hand")
            .command("systemctl disable --now irqbalance"),
        false => finding,
    }
}
