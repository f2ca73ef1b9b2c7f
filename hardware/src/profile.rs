//! What a disk can do by itself, measured once and kept as a file: the hardware profile.
//!
//! Owns the format (`hardware/profiles/README.md` describes it), its reading and its checks. Never:
//! measures. A profile says nothing about a broker and names no machine.
//!
//! ```text
//! schema = 1            one file, one disk under one file system, one date
//! [device] [file_system] [host] [conditions]
//! [[sequential_write]] [[sequential_read]] [[random_read]]    a cell each: request size and depth
//! [[mixed]]             reads beside writes
//! [synced_append]       4 KiB, one at a time, each with a sync of its data
//! ```

use serde::{Deserialize, Serialize};

/// The only version of the format there is.
const SCHEMA: u32 = 1;
/// Figures are kept to a tenth.
const ROUNDING: f64 = 0.06;
/// Larger files are no profiles.
const BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub schema: u32,
    /// `2026-11-30`.
    pub date: String,
    /// Version of the program that measured.
    pub corelane: String,
    /// The limits that were set to make a fast disk look like this one; absent of a real disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    pub device: Device,
    pub file_system: FileSystem,
    pub host: HostFacts,
    pub conditions: Conditions,
    pub synced_append: SyncedAppend,
    pub sequential_write: Vec<Cell>,
    pub sequential_read: Vec<Cell>,
    pub random_read: Vec<Cell>,
    pub mixed: Vec<Mixed>,
}

/// Texts say `unknown` where the kernel does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    pub model: String,
    /// As [`crate::DiskKind::name`].
    pub kind: String,
    pub size_bytes: u64,
    /// As the kernel says; virtual disks are often called rotational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    pub is_virtual: bool,
    pub scheduler: String,
    pub write_cache: String,
    /// How many disks the file system is made of.
    pub disks: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystem {
    pub kind: String,
    pub options: Vec<String>,
    pub total_bytes: u64,
    pub free_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    pub kernel: String,
    pub cpu: String,
    pub cpus: u32,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    pub file_bytes: u64,
    pub seconds_per_cell: f64,
    /// Whether every block of the file was written before it was measured.
    pub prefilled: bool,
    /// Other work on the machine: the load average at the start.
    pub load_average: f64,
}

/// Figures of one request size at one depth. MB are 10^6 bytes, times are microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    pub request_bytes: u64,
    pub depth: u32,
    pub mb_per_s: f64,
    pub iops: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// Of one core, by the thread that asks; 100 means that it may be the limit.
    pub cpu_percent: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    pub write: Cell,
    pub read: Cell,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncedAppend {
    pub request_bytes: u64,
    pub per_second: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub p9999_us: f64,
    pub max_us: f64,
    pub count: u64,
}

/// Why a text is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("larger than 1 MiB, so no hardware profile")]
    TooLarge,
    #[error("not a hardware profile: {0}")]
    Malformed(#[from] toml::de::Error),
    #[error("cannot be written as TOML: {0}")]
    Unwritable(#[from] toml::ser::Error),
    #[error("schema {0} is not known; this version reads schema {SCHEMA}")]
    Schema(u32),
    #[error("{0}")]
    Impossible(String),
}

impl Profile {
    pub const SCHEMA: u32 = SCHEMA;

    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        if text.len() > BYTES_MAX {
            return Err(ProfileError::TooLarge);
        }
        let profile: Profile = toml::from_str(text)?;
        profile.check()?;
        Ok(profile)
    }

    pub fn write(&self) -> Result<String, ProfileError> {
        self.check()?;
        Ok(toml::to_string(self)?)
    }

    /// The best rate of all sequential writes, in MB/s: the ceiling for a broker.
    pub fn write_ceiling(&self) -> f64 {
        best(&self.sequential_write)
    }

    pub fn read_ceiling(&self) -> f64 {
        best(&self.sequential_read)
    }

    fn check(&self) -> Result<(), ProfileError> {
        let must = |holds: bool, what: &str| match holds {
            true => Ok(()),
            false => Err(ProfileError::Impossible(what.to_owned())),
        };
        if self.schema != SCHEMA {
            return Err(ProfileError::Schema(self.schema));
        }
        must(is_date(&self.date), "`date` is not like 2026-11-30")?;
        must(!self.emulated.as_ref().is_some_and(String::is_empty), "`emulated` says nothing")?;
        must(self.conditions.seconds_per_cell > 0.0, "`seconds_per_cell` is not a time")?;
        must(!self.sequential_write.is_empty(), "there is no sequential write")?;
        let mixed = self.mixed.iter().flat_map(|mixed| [&mixed.write, &mixed.read]);
        let plain = [&self.sequential_write, &self.sequential_read, &self.random_read];
        for cell in plain.into_iter().flatten().chain(mixed) {
            cell.check()?;
        }
        let synced = &self.synced_append;
        let steps = [synced.p50_us, synced.p90_us, synced.p99_us, synced.p999_us, synced.p9999_us];
        let rising = steps.iter().chain([&synced.max_us]).is_sorted();
        must(rising && synced.p50_us > 0.0, "the percentiles of `synced_append` do not rise")
    }
}

impl Cell {
    /// What a figure cannot be whatever the disk.
    fn check(&self) -> Result<(), ProfileError> {
        let named = format!("{} bytes at depth {}", self.request_bytes, self.depth);
        let rate = self.iops * self.request_bytes as f64 / 1e6;
        // Of both figures: half a tenth of a request is much where requests are large and few.
        let rounding = ROUNDING * (1.0 + self.request_bytes as f64 / 1e6);
        let finite = [self.mb_per_s, self.iops, self.p50_us, self.p99_us, self.max_us];
        let fault = if self.request_bytes == 0 || self.depth == 0 {
            "no request size or no depth"
        } else if finite.iter().any(|figure| !figure.is_finite() || *figure < 0.0) {
            "a figure that is no number"
        } else if (rate - self.mb_per_s).abs() > rounding + 0.02 * rate {
            "MB/s are not requests a second times their size"
        } else if self.p50_us > self.p99_us || self.p99_us > self.max_us {
            "percentiles do not rise"
        } else {
            return Ok(());
        };
        Err(ProfileError::Impossible(format!("{named}: {fault}")))
    }
}

fn best(cells: &[Cell]) -> f64 {
    cells.iter().map(|cell| cell.mb_per_s).fold(0.0, f64::max)
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let digits = |part: &str, count: usize| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    matches!(parts.as_slice(), [year, month, day]
        if digits(year, 4) && digits(month, 2) && digits(day, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(request_bytes: u64, depth: u32) -> Cell {
        Cell {
            request_bytes,
            depth,
            mb_per_s: request_bytes as f64 / 1e3,
            iops: 1000.0,
            p50_us: 900.0,
            p99_us: 1500.0,
            max_us: 4000.0,
            cpu_percent: 12.5,
        }
    }

    fn profile() -> Profile {
        Profile {
            schema: SCHEMA,
            date: "2026-11-30".into(),
            corelane: "0.1.0".into(),
            emulated: None,
            device: Device {
                model: "unknown".into(),
                kind: "virtual".into(),
                size_bytes: 1 << 38,
                rotational: Some(true),
                is_virtual: true,
                scheduler: "none".into(),
                write_cache: "write back".into(),
                disks: 1,
            },
            file_system: FileSystem {
                kind: "ext4".into(),
                options: vec!["rw".into()],
                total_bytes: 1 << 38,
                free_bytes: 1 << 36,
            },
            host: HostFacts {
                kernel: "6.18".into(),
                cpu: "unknown".into(),
                cpus: 2,
                memory_bytes: 1 << 34,
            },
            conditions: Conditions {
                file_bytes: 1 << 30,
                seconds_per_cell: 1.0,
                prefilled: true,
                load_average: 0.5,
            },
            synced_append: SyncedAppend {
                request_bytes: 4096,
                per_second: 8000.0,
                p50_us: 120.0,
                p90_us: 150.0,
                p99_us: 220.0,
                p999_us: 900.0,
                p9999_us: 2000.0,
                max_us: 2500.0,
                count: 8000,
            },
            sequential_write: vec![cell(4096, 1), cell(1 << 20, 32)],
            sequential_read: vec![cell(1 << 20, 4)],
            random_read: vec![cell(4096, 32)],
            mixed: vec![Mixed { write: cell(65536, 8), read: cell(65536, 8) }],
        }
    }

    #[test]
    fn a_profile_comes_back_as_it_was_written() {
        let profile = profile();
        let text = profile.write().unwrap();
        assert_eq!(Profile::parse(&text).unwrap(), profile);
        assert!((profile.write_ceiling() - 1048.576).abs() < 1e-9);
    }

    #[test]
    fn the_figures_of_a_slow_disk_do_not_contradict_each_other() {
        // 0.149 requests of 1 MiB a second, both figures rounded.
        let mut slow = profile();
        slow.sequential_write.push(Cell { mb_per_s: 0.2, iops: 0.1, ..cell(1 << 20, 1) });
        assert!(slow.write().is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let text = profile().write().unwrap();
        let table = [
            ("schema = 1", "schema = 2", "schema 2 is not known"),
            ("date = \"2026-11-30\"", "date = \"soon\"", "`date`"),
            ("iops = 1000.0", "iops = 900.0", "times their size"),
            ("p99_us = 1500.0", "p99_us = 15.0", "do not rise"),
            ("p99_us = 220.0", "p99_us = 20.0", "`synced_append`"),
            ("depth = 32", "depth = 0", "no depth"),
            ("kernel = ", "colonel = ", "unknown field"),
            ("is_virtual = true", "", "missing field"),
        ];
        for (good, bad, words) in table {
            assert!(text.contains(good), "{good}");
            let error = Profile::parse(&text.replace(good, bad)).unwrap_err().to_string();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }

    /// Those that are kept in the repository.
    #[test]
    fn every_profile_in_the_repository_is_one() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let profile = Profile::parse(&text);
                assert!(profile.is_ok(), "{}: {:?}", path.display(), profile.err());
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let emulated = profile.unwrap().emulated.is_some();
                assert_eq!(name.contains("emulated"), emulated, "{name}");
                count += 1;
            }
        }
        assert!(count > 0, "there is no profile");
    }
}
