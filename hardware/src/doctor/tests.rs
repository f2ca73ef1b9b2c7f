//! The doctor and the tuner on machines that are not this one.

use std::io;
use std::path::PathBuf;

use super::*;
use crate::host::Rooted;
use crate::tune;

/// A machine's files in a temporary folder.
struct Fake {
    root: tempfile::TempDir,
}

impl Fake {
    /// What every machine has, in a state that nothing is to be said of.
    fn new() -> Fake {
        let fake = Fake { root: tempfile::tempdir().unwrap() };
        let files = [
            (
                "/proc/self/status",
                "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3\n",
            ),
            ("/proc/self/cgroup", "0::/\n"),
            ("/proc/1/cgroup", "0::/init.scope\n"),
            ("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse4_2\n"),
            ("/proc/meminfo", "MemTotal:       16000000 kB\n"),
            ("/proc/swaps", "Filename Type Size Used Priority\n"),
            ("/proc/interrupts", "           CPU0       CPU1       CPU2       CPU3\n"),
            ("/proc/sys/vm/swappiness", "60\n"),
            ("/proc/sys/vm/dirty_background_bytes", "268435456\n"),
            ("/proc/sys/vm/dirty_background_ratio", "0\n"),
            ("/proc/sys/vm/dirty_bytes", "1073741824\n"),
            ("/proc/sys/net/core/somaxconn", "4096\n"),
            ("/proc/sys/net/core/rmem_max", "212992\n"),
            ("/proc/sys/net/core/wmem_max", "212992\n"),
            ("/proc/sys/net/ipv4/tcp_max_syn_backlog", "4096\n"),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
            ("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0\n"),
            ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet\n"),
            ("/sys/devices/system/node/online", "0\n"),
            ("/sys/devices/system/cpu/isolated", "\n"),
        ];
        files.iter().for_each(|(path, text)| fake.file(path, text));
        fake
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// A link that stays inside, to an absolute path of the machine.
    fn link(&self, from: &str, to: &str) {
        let from_path = self.path(from);
        std::fs::create_dir_all(from_path.parent().unwrap()).unwrap();
        let up = "../".repeat(from.trim_start_matches('/').matches('/').count());
        std::os::unix::fs::symlink(format!("{up}{}", to.trim_start_matches('/')), from_path)
            .unwrap();
    }

    /// A disk at a place in the device tree with the attributes of its queue.
    fn disk(&self, name: &str, place: &str, number: &str, queue: &[(&str, &str)]) {
        let device = format!("/sys/devices/{place}/block/{name}");
        self.file(&format!("{device}/size"), "1953525168\n");
        for (attribute, value) in queue {
            self.file(&format!("{device}/{attribute}"), &format!("{value}\n"));
        }
        self.link(&format!("/sys/block/{name}"), &device);
        self.link(&format!("/sys/dev/block/{number}"), &device);
        self.link(&format!("/sys/class/block/{name}"), &device);
    }

    fn host(&self) -> Rooted {
        Rooted::at(self.root.path())
    }

    fn examine(&self) -> Vec<Finding> {
        examine_on(&self.host())
    }
}

fn examine_on(host: &dyn Host) -> Vec<Finding> {
    examine(host, &Request { data_dirs: &[PathBuf::from("/data/corelane")], checks: &[] })
}

fn find<'a>(findings: &'a [Finding], id: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("no {id}"))
}

fn levels(findings: &[Finding], expected: &[(&str, Level)]) {
    for (id, level) in expected {
        let finding = find(findings, id);
        assert_eq!(finding.level, *level, "{finding:?}");
    }
}

/// A server with two NVMe disks, of which one holds the data, and a network card with four queues.
fn bare_nvme() -> Fake {
    let fake = Fake::new();
    let status = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-15\n";
    fake.file("/proc/self/status", status);
    fake.file(
        "/proc/self/mountinfo",
        "20 1 259:0 / / rw - ext4 /dev/nvme0n1p1 rw\n\
         21 20 259:5 / /data rw,noatime - xfs /dev/nvme1n1p1 rw,attr2\n",
    );
    let queue = [
        ("queue/scheduler", "[mq-deadline] none"),
        ("queue/nomerges", "0"),
        ("queue/rotational", "0"),
        ("queue/write_cache", "write through"),
        ("queue/max_sectors_kb", "128"),
        ("queue/max_hw_sectors_kb", "512"),
        ("device/model", "SAMSUNG MZQL21T9"),
    ];
    fake.disk("nvme1n1", "pci0000:00/0000:01:00.0/nvme/nvme1", "259:4", &queue);
    let partition = "/sys/devices/pci0000:00/0000:01:00.0/nvme/nvme1/block/nvme1n1/nvme1n1p1";
    fake.file(&format!("{partition}/partition"), "1\n");
    fake.link("/sys/dev/block/259:5", partition);
    fake.link("/sys/class/net/eth0", "/sys/devices/pci0000:00/0000:02:00.0/net/eth0");
    fake.link(
        "/sys/devices/pci0000:00/0000:02:00.0/net/eth0/device",
        "/sys/devices/pci0000:00/0000:02:00.0",
    );
    let mut table = "           CPU0\n".to_owned();
    for irq in 40..45 {
        fake.file(&format!("/sys/devices/pci0000:00/0000:02:00.0/msi_irqs/{irq}"), "msix\n");
        fake.file(&format!("/proc/irq/{irq}/smp_affinity_list"), "0-15\n");
        fake.file(&format!("/proc/irq/{irq}/effective_affinity_list"), "0\n");
        // The first is for configuration and never comes.
        table.push_str(&format!(" {irq}: {} PCI-MSIX eth0-{irq}\n", (irq - 40) * 1000));
    }
    fake.file("/proc/interrupts", &table);
    for cpu in 0..16 {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
        fake.file(
            &format!("{folder}/scaling_governor"),
            if cpu == 3 { "performance" } else { "powersave" },
        );
        fake.file(&format!("{folder}/scaling_available_governors"), "performance powersave");
        fake.file(&format!("{folder}/energy_performance_preference"), "performance");
    }
    let idle = "/sys/devices/system/cpu/cpu0/cpuidle";
    for (state, name, latency) in [("state0", "POLL", "0"), ("state3", "C6", "170")] {
        fake.file(&format!("{idle}/{state}/name"), name);
        fake.file(&format!("{idle}/{state}/latency"), latency);
        fake.file(&format!("{idle}/{state}/disable"), "0");
    }
    fake.file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    fake.file(
        "/proc/swaps",
        "Filename Type Size Used Priority\n/dev/sda2 partition 8000000 0 -2\n",
    );
    fake.file("/sys/devices/system/node/online", "0-1\n");
    fake.file("/proc/sys/kernel/numa_balancing", "1\n");
    fake
}

#[test]
fn a_bare_machine_with_nvme_is_told_everything_and_set() {
    let fake = bare_nvme();
    let findings = fake.examine();
    levels(
        &findings,
        &[
            ("disk.device", Level::Ok),
            ("disk.file_system", Level::Ok),
            ("disk.mount", Level::Ok),
            ("disk.scheduler", Level::Advice),
            ("disk.nomerges", Level::Advice),
            ("disk.request_size", Level::Advice),
            ("disk.write_cache", Level::Ok),
            ("irq.network", Level::Advice),
            ("cpu.governor", Level::Advice),
            ("cpu.energy_bias", Level::Ok),
            ("cpu.sleep", Level::Advice),
            ("cpu.isolation", Level::Advice),
            ("cpu.memory_nodes", Level::Advice),
            ("memory.huge_pages", Level::Advice),
            ("memory.swap", Level::Advice),
            ("host.kind", Level::Ok),
            ("host.clock", Level::Ok),
        ],
    );
    assert!(find(&findings, "disk.device").present.contains("SAMSUNG MZQL21T9"));
    assert_eq!(find(&findings, "disk.request_size").wanted, "512 KiB");
    let applied = tune::apply(&fake.host(), &findings);
    assert!(applied.iter().all(|applied| applied.refused.is_none()), "{applied:?}");
    let read = |path: &str| fake.host().read(path).unwrap();
    assert_eq!(read("/sys/block/nvme1n1/queue/scheduler"), "none");
    assert_eq!(read("/sys/block/nvme1n1/queue/max_sectors_kb"), "512");
    assert_eq!(read("/sys/devices/system/cpu/cpu15/cpufreq/scaling_governor"), "performance");
    assert_eq!(read("/proc/sys/vm/swappiness"), "1");
    // The four queues in use, each to a CPU of its own; the slot for configuration is left alone.
    let irqs: Vec<String> =
        (40..45).map(|irq| read(&format!("/proc/irq/{irq}/smp_affinity_list"))).collect();
    assert_eq!(irqs, ["0-15", "0", "1", "2", "3"]);
    // What was set is not asked for again; the files do not show what the hardware made of it.
    let again = fake.examine();
    let left: Vec<&str> = tune::fixes(&again).map(|fix| fix.path.as_str()).collect();
    assert!(left.iter().all(|path| path.starts_with("/proc/irq/")), "{left:?}");
}

#[test]
fn what_was_set_is_kept_over_a_boot() {
    let fake = bare_nvme();
    let before = tune::files(&fake.examine());
    tune::apply(&fake.host(), &fake.examine());
    let files = tune::files(&fake.examine());
    let text = |path: &str| {
        let found = files.iter().find(|file| file.path.contains(path));
        found.map(|file| file.text.clone()).unwrap_or_else(|| panic!("no {path}"))
    };
    assert!(text("sysctl.d").contains("vm.swappiness = 1\n"));
    assert!(text("sysctl.d").contains("net.core.somaxconn = 4096\n"));
    let rule = "ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"nvme1n1\", \
                ATTR{queue/scheduler}=\"none\"\n";
    assert!(text("udev").contains(rule), "{}", text("udev"));
    assert!(text("tmpfiles.d").contains("transparent_hugepage/enabled - - - - madvise\n"));
    assert!(!text("tmpfiles.d").contains("/proc/irq/"));
    assert!(text("systemd").contains("LimitNOFILE="));
    assert_eq!(before.len(), files.len());
}

#[test]
fn a_disk_with_heads_wants_its_requests_sorted() {
    let fake = Fake::new();
    fake.file(
        "/proc/self/mountinfo",
        "21 20 8:0 / /data rw,relatime,discard - ext4 /dev/sda rw,barrier=0\n",
    );
    let queue = [
        ("queue/scheduler", "[none] mq-deadline bfq"),
        ("queue/nomerges", "0"),
        ("queue/rotational", "1"),
        ("queue/write_cache", "write through"),
        ("queue/max_sectors_kb", "1280"),
        ("queue/max_hw_sectors_kb", "32767"),
        ("device/model", "WDC WD40EFRX"),
    ];
    fake.disk("sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0", "8:0", &queue);
    let findings = fake.examine();
    levels(
        &findings,
        &[
            ("disk.file_system", Level::Advice),
            ("disk.mount", Level::Problem),
            ("disk.scheduler", Level::Advice),
            ("disk.nomerges", Level::Ok),
            ("disk.request_size", Level::Ok),
            ("disk.write_cache", Level::Advice),
            ("cpu.governor", Level::Ok),
            ("memory.swap", Level::Ok),
        ],
    );
    assert_eq!(find(&findings, "disk.scheduler").wanted, "mq-deadline");
    assert!(find(&findings, "disk.mount").commands[0].contains("barrier=1"));
    let commands = findings.iter().flat_map(|finding| &finding.commands);
    assert!(!commands.clone().any(|command| command.contains("mkfs")), "it would empty a disk");
    assert!(find(&findings, "cpu.governor").present.contains("does not govern"));
}

#[test]
fn a_virtual_machine_is_known_by_its_cpu_and_its_disk() {
    let fake = Fake::new();
    fake.file("/proc/cpuinfo", "flags\t\t: fpu hypervisor sse4_2\n");
    fake.file("/proc/self/mountinfo", "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n");
    let queue = [
        ("queue/scheduler", "none [mq-deadline] kyber"),
        ("queue/rotational", "1"),
        ("queue/nomerges", "0"),
        ("queue/write_cache", "write back"),
        ("queue/max_sectors_kb", "4096"),
        ("queue/max_hw_sectors_kb", "2147483647"),
    ];
    fake.disk("vda", "pci0000:00/0000:00:02.0/virtio1", "254:0", &queue);
    // No list of interrupts in the slot: found by the name of the device above the disk.
    fake.file(
        "/proc/interrupts",
        "           CPU0       CPU1\n 36:   0   40162235 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n \
          35:  1  0 PCI-MSIX  virtio1-config\n 37:  4  5 PCI-MSIX  virtio11-req.0\n",
    );
    fake.file("/proc/irq/35/smp_affinity_list", "1\n");
    fake.file("/proc/irq/36/smp_affinity_list", "1\n");
    fake.file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "acpi_pm\n");
    let findings = fake.examine();
    levels(
        &findings,
        &[
            ("host.kind", Level::Ok),
            ("host.clock", Level::Advice),
            // Called rotational by the kernel, and all the same no disk with heads.
            ("disk.scheduler", Level::Advice),
            ("disk.write_cache", Level::Ok),
            ("disk.mount", Level::Advice),
            ("irq.disk", Level::Ok),
        ],
    );
    assert!(find(&findings, "host.kind").present.contains("virtual machine"));
    assert_eq!(find(&findings, "disk.scheduler").wanted, "none");
    assert_eq!(find(&findings, "disk.mount").wanted, "noatime,nodiscard");
    assert_eq!(find(&findings, "irq.disk").present, "interrupt→CPU 36→1");
    assert!(find(&findings, "disk.write_cache").present.contains("host"));
}

/// Takes no value, and hides one file, as a container without rights does.
struct NoRights(Rooted);

impl Host for NoRights {
    fn read(&self, path: &str) -> io::Result<String> {
        match path {
            "/proc/sys/vm/swappiness" => Err(io::ErrorKind::PermissionDenied.into()),
            _ => self.0.read(path),
        }
    }

    fn set(&self, path: &str, _: &str) -> io::Result<()> {
        let read_only = path.starts_with("/sys/");
        let kind = if read_only {
            io::ErrorKind::ReadOnlyFilesystem
        } else {
            io::ErrorKind::PermissionDenied
        };
        Err(kind.into())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.0.list(path)
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        self.0.resolve(path)
    }
}

#[test]
fn a_container_without_rights_is_told_what_could_not_be_read_or_set() {
    let fake = Fake::new();
    fake.file(
        "/proc/self/status",
        "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0\nCpus_allowed_list:\t0-3\n",
    );
    fake.file("/.dockerenv", "");
    fake.file("/proc/self/cgroup", "0::/\n");
    fake.file(
        "/proc/self/mountinfo",
        "1 0 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a\n\
         2 1 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    );
    fake.file("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    fake.file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    fake.file("/proc/sys/net/core/somaxconn", "128\n");
    std::fs::remove_file(fake.path("/proc/sys/net/core/rmem_max")).unwrap();
    let host = NoRights(fake.host());
    let findings = examine_on(&host);
    levels(
        &findings,
        &[
            ("host.kind", Level::Advice),
            ("disk.device", Level::Problem),
            ("memory.swap", Level::Unknown),
            ("net.rmem_max", Level::Unknown),
            ("net.somaxconn", Level::Advice),
        ],
    );
    assert!(find(&findings, "memory.swap").present.contains("permission denied"));
    assert_eq!(find(&findings, "host.rights").present, "no root, or without CAP_SYS_ADMIN");
    let applied = tune::apply(&host, &findings);
    assert_eq!(applied.len(), 2);
    let why = |path: &str| {
        let found = applied.iter().find(|applied| applied.fix.path.contains(path)).unwrap();
        found.refused.clone().unwrap()
    };
    assert!(why("hugepage").contains("read-only"));
    assert!(why("somaxconn").contains("as root"));
    // A quota below the mask is the preflight's to judge, by the same figures.
    let cpus = cpus_of(&host).unwrap();
    assert_eq!((cpus.ids.len(), cpus.quota), (4, Some(1.5)));
    let check = crate::preflight::cpus(4, &cpus);
    assert_eq!(of_check(&check).level, Level::Advice);
    assert!(of_check(&check).present.contains("quota 1.5"));
}

#[test]
fn a_running_broker_is_judged_by_its_own_limits() {
    let fake = Fake::new();
    fake.file("/proc/41/comm", "corelane\n");
    fake.file("/proc/41/cmdline", "/usr/bin/corelane\0serve\0");
    let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                  Max open files            1024                 4096                 files\n\
                  Max locked memory         unlimited            unlimited            bytes\n";
    fake.file("/proc/41/limits", limits);
    fake.file("/proc/42/comm", "corelane\n");
    fake.file("/proc/42/cmdline", "corelane\0topic\0list\0");
    let findings = fake.examine();
    let of_service: Vec<&Finding> = findings.iter().filter(|f| f.id == "service.limits").collect();
    assert_eq!(of_service.len(), 2);
    assert!(of_service.iter().all(|finding| finding.subject == "broker 41"));
    assert_eq!(of_service[0].level, Level::Advice);
    assert!(of_service[0].present.contains("limit 1024"));
    assert_eq!(of_service[1].level, Level::Ok);
}

#[test]
fn isolated_cpus_that_the_broker_may_not_use_are_told() {
    let fake = Fake::new();
    fake.file("/sys/devices/system/cpu/isolated", "4-7\n");
    let findings = fake.examine();
    let finding = find(&findings, "cpu.isolation");
    assert_eq!(finding.level, Level::Advice);
    assert!(finding.commands[0].contains("taskset -c 4-7"));
}

#[test]
fn disks_below_raid_and_device_mapper_are_found() {
    let fake = Fake::new();
    fake.file("/proc/self/mountinfo", "21 20 253:0 / /data rw,noatime - xfs /dev/mapper/d rw\n");
    fake.disk("dm-0", "virtual", "253:0", &[]);
    fake.disk("md0", "virtual", "9:0", &[]);
    let queue = [("queue/rotational", "0"), ("queue/scheduler", "[none] mq-deadline")];
    fake.disk("sda", "pci0/ata1", "8:0", &queue);
    fake.disk("sdb", "pci0/ata2", "8:16", &queue);
    fake.file("/sys/devices/virtual/block/dm-0/slaves/md0", "");
    for name in ["sda", "sdb"] {
        fake.file(&format!("/sys/devices/virtual/block/md0/slaves/{name}"), "");
    }
    let findings = fake.examine();
    let subjects: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.id == "disk.scheduler")
        .map(|finding| finding.subject.as_str())
        .collect();
    assert_eq!(subjects, ["sda", "sdb"]);
}

#[test]
fn every_finding_that_wants_something_says_what_and_how() {
    for findings in [bare_nvme().examine(), Fake::new().examine()] {
        for finding in findings {
            assert!(!finding.why.is_empty() && !finding.present.is_empty(), "{finding:?}");
            let wants = matches!(finding.level, Level::Advice | Level::Problem);
            assert_eq!(wants, !finding.wanted.is_empty(), "{finding:?}");
            assert!(!finding.present.contains('\n') && !finding.present.contains("os error"));
        }
    }
}

#[test]
fn this_machine_can_be_looked_at() {
    let here = std::env::current_dir().unwrap();
    let request = Request { data_dirs: &[here], checks: &[] };
    let findings = examine(&Rooted::here(), &request);
    assert!(find(&findings, "disk.device").present.len() > 3);
    assert!(findings.len() > 15);
}

#[test]
fn a_mount_point_is_one_word_of_its_commands() {
    for (value, word) in [
        ("/data", "/data"),
        ("/a b", "'/a b'"),
        ("/x;reboot", "'/x;reboot'"),
        ("/it's$(id)", "'/it'\\''s$(id)'"),
        ("/a\n\u{1b}[2J'\\", "$'/a\\u000a\\u001b[2J\\'\\\\'"),
        ("", "''"),
    ] {
        assert_eq!(quoted(value), word);
    }
    let fake = bare_nvme();
    let mounts = "20 1 259:5 / / rw,nobarrier - xfs /dev/nvme1n1p1 rw\n\
                  21 20 259:5 / /data/corelane\\040;id rw - xfs /dev/nvme1n1p1 rw\n";
    fake.file("/proc/self/mountinfo", mounts);
    let look = |dir: &str| {
        let dirs = [PathBuf::from(dir)];
        examine(&fake.host(), &Request { data_dirs: &dirs, checks: &[] })
    };
    let findings = look("/data/corelane ;id");
    let commands = &find(&findings, "disk.mount").commands;
    assert_eq!(commands[0], "mount -o remount,noatime '/data/corelane ;id'");
    // XFS knows no `barrier=1`.
    assert!(find(&look("/other"), "disk.mount").commands[0].starts_with("take nobarrier out"));
}

#[test]
fn a_rule_knows_its_disk_by_what_does_not_move() {
    let fake = bare_nvme();
    let rules = || {
        let files = tune::files(&fake.examine());
        files.iter().find(|file| file.path.contains("udev")).unwrap().text.clone()
    };
    assert!(rules().contains("KERNEL==\"nvme1n1\""));
    fake.file("/sys/block/nvme1n1/wwid", "eui.36344630528029720025384100000001\n");
    let by_id = "ATTRS{wwid}==\"eui.36344630528029720025384100000001\"";
    assert!(rules().contains(by_id) && !rules().contains("KERNEL=="), "{}", rules());
    fake.file("/sys/block/nvme1n1/wwid", "x\", RUN+=\"y\n");
    assert!(rules().contains("KERNEL==\"nvme1n1\""), "a mark that would end its quotes");
}

#[test]
fn interrupts_go_to_all_cpus_whoever_looks() {
    let fake = bare_nvme();
    fake.file("/sys/devices/system/cpu/online", "0-15\n");
    let status = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t3\n";
    fake.file("/proc/self/status", status);
    let findings = fake.examine();
    let cpus: Vec<&str> =
        find(&findings, "irq.network").fixes.iter().map(|fix| fix.value.as_str()).collect();
    assert_eq!(cpus, ["0", "1", "2", "3"]);
}
