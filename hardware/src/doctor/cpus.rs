//! How the CPUs are run: clock, sleep, isolation, memory nodes.

use super::machine::Setting;
use super::{Finding, Persist};
use crate::host::{Host, format_list, parse_list};

const CPUS: &str = "/sys/devices/system/cpu";
/// Machines with fewer CPUs have none to give away to the kernel.
const ISOLATION_FROM: usize = 8;
/// A sleep that takes longer to wake from shows in the latency of a lone request, in microseconds.
const DEEP_SLEEP_US: u64 = 100;

pub(super) fn findings(host: &dyn Host, setting: &Setting, cpus: &[usize]) -> Vec<Finding> {
    vec![
        on_each(host, cpus, "cpu.governor", GOVERNOR),
        on_each(host, cpus, "cpu.energy_bias", ENERGY),
        sleep(host),
        isolation(host, setting, cpus),
        nodes(host),
    ]
}

/// An attribute that each CPU has: what to say of it, its file, the value wanted.
struct Each {
    why: &'static str,
    file: &'static str,
    absent: &'static str,
}

const GOVERNOR: Each = Each {
    why: "a shard sleeps between requests; a governor that saves power answers the first ones slowly",
    file: "cpufreq/scaling_governor",
    absent: "the kernel does not govern the clock here (a virtual machine, or fixed)",
};
const ENERGY: Each = Each {
    why: "the processor's own preference between speed and power, which counts beside the governor",
    file: "cpufreq/energy_performance_preference",
    absent: "the processor offers no such preference here",
};

fn on_each(host: &dyn Host, cpus: &[usize], id: &'static str, each: Each) -> Finding {
    const WANTED: &str = "performance";
    let path = |cpu: usize| format!("{CPUS}/cpu{cpu}/{}", each.file);
    let mut values: Vec<(usize, String)> = Vec::new();
    for &cpu in cpus {
        match host.read(&path(cpu)) {
            Ok(value) => values.push((cpu, value)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Finding::unknown(id, "", each.why, &path(cpu), &error),
        }
    }
    let mut names: Vec<&str> = values.iter().map(|(_, value)| value.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Finding::ok(id, "", each.why, each.absent);
    }
    let finding = Finding::ok(id, "", each.why, names.join(", "));
    if names == [WANTED] {
        return finding;
    }
    let offered =
        host.read(&format!("{CPUS}/cpu{}/cpufreq/scaling_available_governors", values[0].0));
    let missing = id == "cpu.governor"
        && offered.as_ref().is_ok_and(|o| !o.split_whitespace().any(|one| one == WANTED));
    if missing {
        return finding
            .advice(format!("{WANTED}; this kernel offers {}", offered.unwrap_or_default()));
    }
    let others = values.iter().filter(|(_, value)| value != WANTED);
    others.fold(finding.advice(WANTED), |finding, (cpu, _)| {
        finding.fix(path(*cpu), WANTED, Persist::Tmpfiles)
    })
}

fn sleep(host: &dyn Host) -> Finding {
    const ID: &str = "cpu.sleep";
    const WHY: &str = "a lone request first waits until its CPU wakes up";
    let folder = format!("{CPUS}/cpu0/cpuidle");
    let states = host.list(&folder).unwrap_or_default();
    let mut deepest: Option<(String, u64)> = None;
    for state in states.iter().filter(|name| name.starts_with("state")) {
        let read = |file: &str| host.read(&format!("{folder}/{state}/{file}")).unwrap_or_default();
        let latency: u64 = read("latency").parse().unwrap_or(0);
        if read("disable") != "1" && deepest.as_ref().is_none_or(|(_, known)| latency > *known) {
            deepest = Some((read("name"), latency));
        }
    }
    let Some((name, latency)) = deepest else {
        return Finding::ok(ID, "", WHY, "the kernel shows no sleep states here");
    };
    let finding = Finding::ok(ID, "", WHY, format!("deepest {name}, {latency} µs to wake"));
    if latency <= DEEP_SLEEP_US {
        return finding;
    }
    finding
        .advice("shallow sleep, where the first microseconds count; it costs power")
        .command(format!("cpupower idle-set -D {DEEP_SLEEP_US}"))
        .command("corelane serve --poll   # shards spin before they sleep")
}

fn isolation(host: &dyn Host, setting: &Setting, cpus: &[usize]) -> Finding {
    const ID: &str = "cpu.isolation";
    const WHY: &str = "what else runs on a shard's CPU stops the shard; a process gets no isolated CPU \
                       unless it is told which";
    let list = |file: &str| host.read(&format!("{CPUS}/{file}")).ok().and_then(|t| parse_list(&t));
    let isolated = list("isolated").unwrap_or_default();
    let tickless = list("nohz_full").unwrap_or_default();
    let shown = |cpus: &[usize]| match cpus {
        [] => "none".to_owned(),
        cpus => format_list(cpus),
    };
    let present = format!(
        "isolated {}, without ticks {}, this process may use {}",
        shown(&isolated),
        shown(&tickless),
        shown(cpus)
    );
    let finding = Finding::ok(ID, "", WHY, present);
    if !isolated.is_empty() && !isolated.iter().any(|cpu| cpus.contains(cpu)) {
        let cpus = format_list(&isolated);
        return finding
            .advice("the broker on the isolated CPUs")
            .command(format!("taskset -c {cpus} corelane serve"))
            .command(format!("systemd: CPUAffinity={cpus}"));
    }
    let own = setting.hypervisor.is_none() && setting.container.is_none();
    if isolated.is_empty() && own && cpus.len() >= ISOLATION_FROM {
        let (kernel, shards) = cpus.split_at(cpus.len() / 16 + 1);
        let shards = format_list(shards);
        return finding
            .advice(format!("CPUs {} for the kernel, the others for shards alone", shown(kernel)))
            .command(format!(
                "kernel command line: isolcpus=managed_irq,domain,{shards} nohz_full={shards} \
                 rcu_nocbs={shards}"
            ))
            .command(format!("systemd: CPUAffinity={shards}"));
    }
    finding
}

fn nodes(host: &dyn Host) -> Finding {
    const ID: &str = "cpu.memory_nodes";
    const WHY: &str =
        "shards keep to their CPU and their memory; the kernel need not move pages after them";
    let online = match host.read("/sys/devices/system/node/online") {
        Ok(online) => online,
        Err(error) => return Finding::unknown(ID, "", WHY, "the memory nodes", &error),
    };
    let count = parse_list(&online).map_or(1, |nodes| nodes.len());
    let finding = Finding::ok(ID, "", WHY, format!("{count}"));
    let balancing = host.read("/proc/sys/kernel/numa_balancing").unwrap_or_default();
    if count < 2 || balancing != "1" {
        return finding;
    }
    let key = Persist::Sysctl("kernel.numa_balancing".to_owned());
    finding.advice("no automatic balancing").fix("/proc/sys/kernel/numa_balancing", "0", key)
}
