//! Latency histograms: what a report keeps of one, and the percentile text file beside it.
//!
//! All values are nanoseconds. A report keeps counts by value, coarser than what was recorded (see
//! [`RELATIVE_ERROR`]) so that a report of many rows stays small; counts of several add up. The
//! text file has all of the recorded precision, in the format that HdrHistogram's plotter reads.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Of recorded values: three significant digits.
pub const DIGITS: u8 = 3;
/// Of the values in a report's counts: two significant digits.
const DIGITS_KEPT: u8 = 2;
pub const RELATIVE_ERROR: f64 = 0.01;
/// Longer counts as this: ten minutes.
const MOST_NS: u64 = 600_000_000_000;
/// What is given by name.
pub const PERCENTILES: [f64; 8] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];
/// Of the text file, as HdrHistogram's own tools have it: lines in each halving of what remains.
const TICKS: u32 = 5;

/// Records up to ten minutes with three digits.
pub fn new() -> Histogram<u64> {
    // The bounds are constants that fit each other; a test makes one.
    Histogram::new_with_bounds(1, MOST_NS, DIGITS)
        .unwrap_or_else(|_| unreachable!("constant bounds"))
}

/// `[value in ns, count]`; a value stands for all that are at most 1 % below it.
pub type Buckets = Vec<(u64, u64)>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// For example "produce latency".
    pub name: String,
    /// Always "ns".
    pub unit: String,
    pub count: u64,
    pub min: u64,
    pub max: u64,
    pub mean: f64,
    /// `[percentile, value]`, with the precision of what was recorded.
    pub percentiles: Vec<(f64, u64)>,
    pub relative_error: f64,
    pub buckets: Buckets,
    /// The text file with all of the recorded precision, beside the report.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
}

impl LatencyHistogram {
    pub fn of(name: &str, recorded: &Histogram<u64>) -> Self {
        let value = |percentile: f64| match percentile {
            100.0 => recorded.max(),
            _ => recorded.value_at_percentile(percentile),
        };
        LatencyHistogram {
            name: name.to_owned(),
            unit: "ns".to_owned(),
            count: recorded.len(),
            min: if recorded.is_empty() { 0 } else { recorded.min() },
            max: recorded.max(),
            mean: recorded.mean(),
            percentiles: PERCENTILES.map(|percentile| (percentile, value(percentile))).to_vec(),
            relative_error: RELATIVE_ERROR,
            buckets: buckets(recorded),
            file: None,
        }
    }

    /// Of the percentiles kept.
    pub fn at(&self, percentile: f64) -> Option<u64> {
        let same = |(kept, _): &&(f64, u64)| (kept - percentile).abs() < 1e-9;
        self.percentiles.iter().find(same).map(|(_, value)| *value)
    }
}

fn buckets(recorded: &Histogram<u64>) -> Buckets {
    let mut coarse: Histogram<u64> = Histogram::new_with_bounds(1, MOST_NS, DIGITS_KEPT)
        .unwrap_or_else(|_| unreachable!("constant bounds"));
    for step in recorded.iter_recorded() {
        coarse.saturating_record_n(step.value_iterated_to(), step.count_at_value());
    }
    let of = |step: hdrhistogram::iterators::IterationValue<u64>| {
        (step.value_iterated_to().min(recorded.max()), step.count_at_value())
    };
    coarse.iter_recorded().map(of).collect()
}

/// The percentile distribution as text (`.hgrm`), values in milliseconds.
pub fn percentile_text(recorded: &Histogram<u64>) -> String {
    const PER_MS: f64 = 1e6;
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut seen = 0;
    for step in recorded.iter_quantiles(TICKS) {
        seen += step.count_since_last_iteration();
        let value = step.value_iterated_to().min(recorded.max()) as f64 / PER_MS;
        let quantile = step.quantile_iterated_to();
        // Writing to a String cannot fail.
        let _ = match quantile < 1.0 {
            true => {
                let odds = 1.0 / (1.0 - quantile);
                writeln!(text, "{value:>12.6} {quantile:>14.12} {seen:>10} {odds:>14.2}")
            }
            false => writeln!(text, "{value:>12.6} {quantile:>14.12} {seen:>10} {:>14}", "inf"),
        };
    }
    let (mean, deviation) = (recorded.mean() / PER_MS, recorded.stdev() / PER_MS);
    let _ = writeln!(text, "#[Mean    = {mean:>12.6}, StdDeviation   = {deviation:>12.6}]");
    let (max, count) = (recorded.max() as f64 / PER_MS, recorded.len());
    let _ = writeln!(text, "#[Max     = {max:>12.6}, Total count    = {count:>12}]");
    let (buckets, sub) = (recorded.buckets(), 1u32 << 11);
    let _ = writeln!(text, "#[Buckets = {buckets:>12}, SubBuckets     = {sub:>12}]");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Histogram<u64> {
        let mut histogram = new();
        for value in 1..=10_000u64 {
            histogram.saturating_record(value * 1_000);
        }
        histogram
    }

    #[test]
    fn counts_keep_everything_to_one_percent() {
        let recorded = recorded();
        let kept = LatencyHistogram::of("x", &recorded);
        assert_eq!(kept.buckets.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!(kept.buckets.len() < 2_000, "{}", kept.buckets.len());
        assert_eq!(kept.buckets.last().map(|(value, _)| *value), Some(kept.max));
        let half = kept.buckets.iter().scan(0, |seen, (value, count)| {
            *seen += count;
            Some((*seen, *value))
        });
        let median = half.into_iter().find(|(seen, _)| *seen >= 5_000).unwrap().1;
        let exact = 5_000_000.0;
        assert!((median as f64 / exact - 1.0).abs() <= RELATIVE_ERROR, "{median}");
        let p99 = kept.at(99.0).unwrap() as f64;
        assert!((p99 / 9_900_000.0 - 1.0).abs() < 0.002, "{p99}");
        assert_eq!(kept.at(100.0), Some(recorded.max()));
    }

    #[test]
    fn an_empty_histogram_is_one() {
        let kept = LatencyHistogram::of("x", &new());
        assert_eq!((kept.count, kept.min, kept.max), (0, 0, 0));
        assert!(kept.buckets.is_empty());
    }

    #[test]
    fn the_text_is_the_plotters_format() {
        let text = percentile_text(&recorded());
        let mut lines = text.lines();
        let heading: Vec<_> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(heading, ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
        assert_eq!(lines.next(), Some(""));
        let rows: Vec<Vec<&str>> = lines
            .clone()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(rows.len() > 20 && rows.iter().all(|row| row.len() == 4));
        let last = rows.last().unwrap();
        assert_eq!((last[1], last[2], last[3]), ("1.000000000000", "10000", "inf"));
        assert!(lines.any(|line| line.starts_with("#[Max     =") && line.contains("10000")));
    }
}
