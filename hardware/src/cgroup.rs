//! Where this process sits in the control-group tree, for v1 and v2, inside and outside containers.
//!
//! Owns: the reading of `/proc/self/cgroup` and `/proc/self/mountinfo`, and the walk from the
//! process's group up to the mount point. A limit anywhere on that path binds, so every reader
//! here looks at all levels. Never: writes to a control group.

use std::path::Path;

use crate::host::Host;

/// Groups are nested a few levels deep; more than this is a loop or nonsense.
const MAX_DEPTH: usize = 64;

/// A control-group hierarchy as this process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// v2 ("unified") or the v1 hierarchy that carries the asked controller.
    pub unified: bool,
    /// From the process's own group up to the mount point, innermost first.
    pub levels: Vec<String>,
}

impl Hierarchy {
    /// The values of `file` on all levels that have one.
    pub fn values<'a>(
        &'a self,
        host: &'a dyn Host,
        file: &'a str,
    ) -> impl Iterator<Item = String> + 'a {
        self.levels.iter().filter_map(move |level| host.read(&format!("{level}/{file}")).ok())
    }
}

/// Every mounted hierarchy that can limit `controller`; hosts may mount v1 and v2 side by side.
pub fn hierarchies(host: &dyn Host, controller: &str) -> Vec<Hierarchy> {
    let read = |path| host.read(path).unwrap_or_default();
    parse(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), controller)
}

fn parse(groups: &str, mounts: &str, controller: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let unified = mount.kind == "cgroup2";
        let carries = mount.kind == "cgroup" && mount.options.split(',').any(|o| o == controller);
        if !unified && !carries {
            continue;
        }
        let group = groups.lines().filter_map(Group::parse).find(|group| {
            if unified {
                group.controllers.is_empty()
            } else {
                group.controllers.split(',').any(|c| c == controller)
            }
        });
        let path = group.map_or("/", |group| group.path);
        found.push(Hierarchy { unified, levels: levels(mount.point, mount.root, path) });
    }
    found
}

/// A container sees its own group as the mount's root, so that prefix is not part of the path below
/// the mount point.
fn levels(point: &str, root: &str, path: &str) -> Vec<String> {
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    let below = below.strip_prefix("/").unwrap_or(below);
    let mut levels = Vec::new();
    let mut current = Some(below);
    while let Some(part) = current.filter(|_| levels.len() < MAX_DEPTH) {
        levels.push(Path::new(point).join(part).to_string_lossy().into_owned());
        current = part.parent();
    }
    levels
}

struct Group<'a> {
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Group<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let _id = parts.next()?;
        Some(Group { controllers: parts.next()?, path: parts.next()? })
    }
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// `id parent major:minor root point options [tags] - kind source super-options`
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, _source) = (right.next()?, right.next()?);
        Some(Mount { root, point, kind, options: right.next().unwrap_or("") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(hierarchy: &Hierarchy) -> Vec<&str> {
        hierarchy.levels.iter().map(String::as_str).collect()
    }

    #[test]
    fn unified_group_of_a_service_lists_every_level() {
        let groups = "0::/system.slice/corelane.service\n";
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let found = parse(groups, mounts, "memory");
        assert_eq!(found.len(), 1);
        assert!(found[0].unified);
        assert_eq!(
            paths(&found[0]),
            [
                "/sys/fs/cgroup/system.slice/corelane.service",
                "/sys/fs/cgroup/system.slice",
                "/sys/fs/cgroup/"
            ]
        );
    }

    #[test]
    fn container_root_is_taken_off_the_path() {
        let groups = "4:memory:/docker/abc\n";
        let mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let found = parse(groups, mounts, "memory");
        assert_eq!(paths(&found[0]), ["/sys/fs/cgroup/memory/"]);
    }

    #[test]
    fn v1_controllers_that_share_a_mount_are_found_by_name() {
        let groups = "3:cpu,cpuacct:/a\n2:memory:/b\n";
        let mounts = "1 2 0:3 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      2 2 0:4 / /cg/memory rw - cgroup cgroup rw,memory\n";
        let found = parse(groups, mounts, "cpu");
        assert_eq!(found.len(), 1);
        assert!(!found[0].unified);
        assert_eq!(paths(&found[0]), ["/cg/cpu,cpuacct/a", "/cg/cpu,cpuacct/"]);
    }

    #[test]
    fn nonsense_lines_are_skipped() {
        assert!(parse("nonsense", "also nonsense\n1 2 3\n - \n", "cpu").is_empty());
    }
}
