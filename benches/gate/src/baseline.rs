//! The stored figures, and the comparison with those of now.
//!
//! A text file, a line a figure: name, value, tolerance in percent. Only more is a failure; less is
//! said, so that somebody may store it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::error::Error;

/// Why a figure may be that much higher than stored before the check fails.
const EXPLAINED: &str = "\
# What a request costs: figures of `gate check` that may not grow (see benches/gate/README.md).
#
# instructions  of broker, client and executor on one thread, without kernel and io_uring driver. The
#               same build gives the same figure within 1 %; another compiler moves it by some percent.
# allocations   calls of the allocator on the shard's thread, on io_uring.
# kilobytes     what they ask for; blocks of 128 KiB and more are mappings and not in it.
# enters        calls of io_uring_enter. How much comes together in one is a matter of time.
#
# UPDATE_BASELINE=1 cargo run --profile gate -p corelane-gate -- check
# stores the figures of now. Say in the commit why those that grew did.
#
# figure                                              value  tolerance %
";

/// What is counted, with the tolerance a new figure is stored with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    Instructions,
    Allocations,
    Kilobytes,
    Enters,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Instructions => "instructions",
            Unit::Allocations => "allocations",
            Unit::Kilobytes => "kilobytes",
            Unit::Enters => "enters",
        }
    }

    fn tolerance_percent(self) -> f64 {
        match self {
            Unit::Instructions | Unit::Allocations => 15.0,
            Unit::Kilobytes => 20.0,
            Unit::Enters => 100.0,
        }
    }

    /// Noise of a figure near zero is no growth.
    fn slack(self) -> f64 {
        match self {
            Unit::Instructions => 100.0,
            Unit::Allocations => 0.5,
            Unit::Enters => 1.0,
            // The start of a broker takes some hundred kilobytes more or less.
            Unit::Kilobytes => 16.0,
        }
    }

    fn decimals(self) -> usize {
        match self {
            Unit::Instructions => 0,
            Unit::Allocations | Unit::Kilobytes => 1,
            Unit::Enters => 2,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Figure {
    pub shape: &'static str,
    pub unit: Unit,
    pub value: f64,
}

impl Figure {
    fn name(&self) -> String {
        format!("{}.{}", self.shape, self.unit.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stored {
    value: f64,
    tolerance_percent: f64,
}

#[derive(Debug, Default)]
pub struct Baseline {
    tools: String,
    figures: BTreeMap<String, Stored>,
}

/// The table for people, and whether anything grew.
#[derive(Debug)]
pub struct Verdict {
    pub table: String,
    pub failures: usize,
}

impl Baseline {
    pub fn read(path: &Path) -> Result<Baseline, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path.display().to_string()))?;
        Baseline::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Baseline, Error> {
        let mut baseline = Baseline::default();
        for (line, content) in text.lines().enumerate() {
            let wrong = |detail: &str| Error::Baseline {
                path: path.to_path_buf(),
                line: line + 1,
                detail: detail.to_owned(),
            };
            if content.trim().is_empty() || content.starts_with('#') {
                continue;
            }
            if let Some(tools) = content.strip_prefix("tools ") {
                tools.trim().clone_into(&mut baseline.tools);
                continue;
            }
            let mut words = content.split_whitespace();
            let name = words.next().ok_or_else(|| wrong("a figure without a name"))?;
            let mut number = || words.next().and_then(|word| word.parse::<f64>().ok());
            let (Some(value), Some(tolerance_percent)) = (number(), number()) else {
                return Err(wrong("name, value and tolerance in percent are wanted"));
            };
            baseline.figures.insert(name.to_owned(), Stored { value, tolerance_percent });
        }
        Ok(baseline)
    }

    /// The text to store for these figures; tolerances that were changed by hand stay.
    pub fn renewed(&self, figures: &[Figure], tools: &str) -> String {
        let mut text = EXPLAINED.to_owned();
        let _ = writeln!(text, "tools {tools}");
        for figure in figures {
            let known = self.figures.get(&figure.name()).map(|stored| stored.tolerance_percent);
            let tolerance = known.unwrap_or(figure.unit.tolerance_percent());
            let decimals = figure.unit.decimals();
            let name = figure.name();
            let _ = writeln!(text, "{name:<45} {:>12.decimals$} {tolerance:>6}", figure.value);
        }
        text
    }

    pub fn compare(&self, figures: &[Figure], tools: &str) -> Verdict {
        let mut table = String::new();
        let mut failures = 0;
        if tools != self.tools {
            let _ = writeln!(table, "stored with {}, counted with {tools}", self.tools);
        }
        let (figure, stored, now) = ("figure", "baseline", "now");
        let _ = writeln!(table, "{figure:<45} {stored:>12} {now:>12} {:>8}", "%");
        for figure in figures {
            let (name, decimals) = (figure.name(), figure.unit.decimals());
            let Some(stored) = self.figures.get(&name) else {
                failures += 1;
                let value = figure.value;
                let _ = writeln!(table, "{name:<45} {:>12} {value:>12.decimals$}  not stored", "-");
                continue;
            };
            let percent = (figure.value / stored.value - 1.0) * 100.0;
            let allowed = stored.value * (1.0 + stored.tolerance_percent / 100.0);
            let slack = figure.unit.slack();
            let word = if figure.value > allowed.max(stored.value + slack) {
                failures += 1;
                "  GREW"
            } else if percent < -stored.tolerance_percent && stored.value - figure.value > slack {
                "  fell: store it"
            } else {
                ""
            };
            let _ = writeln!(
                table,
                "{name:<45} {:>12.decimals$} {:>12.decimals$} {percent:>+8.1}{word}",
                stored.value, figure.value
            );
        }
        Verdict { table, failures }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn figure(value: f64) -> Figure {
        Figure { shape: "produce", unit: Unit::Instructions, value }
    }

    fn stored() -> Baseline {
        let text = "# a comment\ntools rustc 1\nproduce.instructions 10000 15\n";
        Baseline::parse(text, Path::new("b")).unwrap()
    }

    #[test]
    fn only_growth_beyond_the_tolerance_fails() {
        let verdict = |value| stored().compare(&[figure(value)], "rustc 1");
        assert_eq!(verdict(11_500.0).failures, 0);
        assert_eq!(verdict(11_501.0).failures, 1);
        assert!(verdict(11_501.0).table.contains("GREW"), "{}", verdict(11_501.0).table);
        assert_eq!(verdict(5_000.0).failures, 0);
        assert!(verdict(5_000.0).table.contains("fell"));
    }

    #[test]
    fn a_figure_that_is_not_stored_fails() {
        let other = Figure { unit: Unit::Enters, ..figure(1.0) };
        assert_eq!(stored().compare(&[other], "rustc 1").failures, 1);
    }

    #[test]
    fn what_is_stored_reads_back_and_keeps_its_tolerances() {
        let text = "tools rustc 1\nproduce.instructions 10000 33\n";
        let old = Baseline::parse(text, Path::new("b")).unwrap();
        let renewed = old.renewed(&[figure(12_345.6)], "rustc 2");
        let read = Baseline::parse(&renewed, Path::new("b")).unwrap();
        assert_eq!(read.tools, "rustc 2");
        let expected = Stored { value: 12_346.0, tolerance_percent: 33.0 };
        assert_eq!(read.figures.get("produce.instructions"), Some(&expected));
    }

    #[test]
    fn a_line_that_is_no_figure_is_named() {
        let broken = Baseline::parse("tools t\nproduce.enters many\n", Path::new("b"));
        assert!(broken.unwrap_err().to_string().starts_with("b:2: "));
    }
}
