//! Limits of the network stack that a broker with many clients meets.

use super::{Finding, Persist};
use crate::host::Host;

/// As many connections may wait to be accepted by one shard.
const BACKLOG: u64 = 4096;
/// A window for some milliseconds at 10 Gbit/s.
const WINDOW_BYTES: u64 = 4 << 20;

pub(super) fn findings(host: &dyn Host) -> Vec<Finding> {
    vec![
        at_least(
            host,
            "net.somaxconn",
            "net.core.somaxconn",
            BACKLOG,
            "when all clients of a broker connect again at once, the rest is turned away",
        ),
        at_least(
            host,
            "net.syn_backlog",
            "net.ipv4.tcp_max_syn_backlog",
            BACKLOG,
            "the same for connections that are only half made",
        ),
        window(host, "net.tcp_rmem", "net.ipv4.tcp_rmem"),
        window(host, "net.tcp_wmem", "net.ipv4.tcp_wmem"),
        told(host, "net.rmem_max", "net.core.rmem_max"),
        told(host, "net.wmem_max", "net.core.wmem_max"),
        slow_start(host),
    ]
}

fn path(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

fn sysctl(key: &str) -> Persist {
    Persist::Sysctl(key.to_owned())
}

fn at_least(
    host: &dyn Host,
    id: &'static str,
    key: &str,
    least: u64,
    why: &'static str,
) -> Finding {
    let present = match host.read(&path(key)) {
        Ok(present) => present,
        Err(error) => return Finding::unknown(id, "", why, key, &error),
    };
    let enough = present.parse().is_ok_and(|value: u64| value >= least);
    let finding = Finding::ok(id, "", why, format!("{key}={present}"));
    match enough {
        true => finding.keep(path(key), present, sysctl(key)),
        false => finding.advice(least.to_string()).fix(path(key), least.to_string(), sysctl(key)),
    }
}

/// Least, first and largest buffer; the kernel chooses between them for each connection.
fn window(host: &dyn Host, id: &'static str, key: &str) -> Finding {
    const WHY: &str = "Corelane leaves the buffers of its connections to the kernel, which grows them up to \
                       the last of the three numbers";
    let present = match host.read(&path(key)) {
        Ok(present) => present,
        Err(error) => return Finding::unknown(id, "", WHY, key, &error),
    };
    let parts: Vec<&str> = present.split_whitespace().collect();
    let finding = Finding::ok(id, "", WHY, format!("{key}={}", parts.join(" ")));
    match parts.as_slice() {
        [least, first, most] if most.parse().is_ok_and(|most: u64| most < WINDOW_BYTES) => {
            let wanted = format!("{least} {first} {WINDOW_BYTES}");
            finding.advice(wanted.clone()).fix(path(key), wanted, sysctl(key))
        }
        _ => finding,
    }
}

/// Shown because everybody looks for it.
fn told(host: &dyn Host, id: &'static str, key: &str) -> Finding {
    const WHY: &str =
        "binds only programs that set their buffers' size themselves; Corelane does not";
    match host.read(&path(key)) {
        Ok(present) => Finding::ok(id, "", WHY, format!("{key}={present}")),
        Err(error) => Finding::unknown(id, "", WHY, key, &error),
    }
}

fn slow_start(host: &dyn Host) -> Finding {
    const ID: &str = "net.slow_start";
    const KEY: &str = "net.ipv4.tcp_slow_start_after_idle";
    const WHY: &str = "a producer that pauses for a moment starts with a small window again, over a network \
                       with any delay";
    match host.read(&path(KEY)) {
        Ok(present) if present == "0" => {
            Finding::ok(ID, "", WHY, format!("{KEY}=0")).keep(path(KEY), "0", sysctl(KEY))
        }
        Ok(present) => Finding::ok(ID, "", WHY, format!("{KEY}={present}")).advice("0").fix(
            path(KEY),
            "0",
            sysctl(KEY),
        ),
        Err(error) => Finding::unknown(ID, "", WHY, KEY, &error),
    }
}
