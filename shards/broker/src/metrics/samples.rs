//! What one scrape has found: families of samples, and their text in Prometheus' exposition format.
//!
//! Pure. A sample that is given twice with the same name and labels is added up: shards report the
//! same topic, and its numbers are the sum. What must be told apart carries a label that says so.

use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: &'static str,
    series: BTreeMap<Labels, f64>,
}

/// Samples of one scrape, by metric name.
#[derive(Debug, Default)]
pub struct Samples(BTreeMap<&'static str, Family>);

impl Samples {
    /// A number that goes up and down.
    pub fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: f64,
    ) {
        self.add(Kind::Gauge, name, help, labels, value);
    }

    /// A number that only grows; its name ends in `_total`.
    pub fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: f64,
    ) {
        debug_assert!(name.ends_with("_total"), "{name} is a counter and should say so");
        self.add(Kind::Counter, name, help, labels, value);
    }

    fn add(
        &mut self,
        kind: Kind,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: f64,
    ) {
        debug_assert!(is_name(name), "{name} is no name of a metric");
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let family = self.family(name, kind, help);
        *family.series.entry(labels).or_default() += value;
    }

    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Family {
        let new = || Family { kind, help, series: BTreeMap::new() };
        let family = self.0.entry(name).or_insert_with(new);
        debug_assert_eq!(family.kind, kind, "{name} is both a gauge and a counter");
        family
    }

    /// Takes in what another shard has found.
    pub fn merge(&mut self, other: Samples) {
        for (name, theirs) in other.0 {
            let family = self.family(name, theirs.kind, theirs.help);
            for (labels, value) in theirs.series {
                *family.series.entry(labels).or_default() += value;
            }
        }
    }

    /// The sum over all series of one metric; 0 if there is none.
    pub fn total(&self, name: &str) -> f64 {
        self.0.get(name).map_or(0.0, |family| family.series.values().sum())
    }

    /// The text format, version 0.0.4.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.0 {
            let kind = match family.kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
            };
            let help = Escaped { text: family.help, quotes: false };
            // Writing to a string cannot fail.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in &family.series {
                text.push_str(name);
                write_labels(&mut text, labels);
                let _ = writeln!(text, " {}", Number(*value));
            }
        }
        text
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with("corelane_")
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn write_labels(text: &mut String, labels: &Labels) {
    for (at, (name, value)) in labels.iter().enumerate() {
        let before = if at == 0 { '{' } else { ',' };
        let value = Escaped { text: value, quotes: true };
        let _ = write!(text, "{before}{name}=\"{value}\"");
    }
    if !labels.is_empty() {
        text.push('}');
    }
}

/// Backslashes and line ends escaped, and quotes where the text stands in some.
struct Escaped<'a> {
    text: &'a str,
    quotes: bool,
}

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.text.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.quotes => f.write_str("\\\"")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            infinite if infinite.is_infinite() => {
                f.write_str(if infinite > 0.0 { "+Inf" } else { "-Inf" })
            }
            nan if nan.is_nan() => f.write_str("NaN"),
            finite => write!(f, "{finite}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_grouped_sorted_and_escaped() {
        let mut samples = Samples::default();
        samples.gauge("corelane_b_bytes", "Line one\nand \\ two.", &[("topic", "a\"b\\c\nd")], 1.5);
        samples.counter("corelane_a_total", "A \"quoted\" help.", &[], 3.0);
        samples.gauge("corelane_b_bytes", "", &[("topic", "A"), ("shard", "1")], 2e15);
        assert_eq!(
            samples.to_text(),
            "# HELP corelane_a_total A \"quoted\" help.\n\
             # TYPE corelane_a_total counter\n\
             corelane_a_total 3\n\
             # HELP corelane_b_bytes Line one\\nand \\\\ two.\n\
             # TYPE corelane_b_bytes gauge\n\
             corelane_b_bytes{topic=\"A\",shard=\"1\"} 2000000000000000\n\
             corelane_b_bytes{topic=\"a\\\"b\\\\c\\nd\"} 1.5\n"
        );
    }

    #[test]
    fn equal_series_add_up_within_and_across_shards() {
        let mut one = Samples::default();
        one.gauge("corelane_x", "x", &[("topic", "t")], 1.0);
        one.gauge("corelane_x", "x", &[("topic", "t")], 2.0);
        let mut other = Samples::default();
        other.gauge("corelane_x", "x", &[("topic", "t")], 4.0);
        other.gauge("corelane_x", "x", &[("topic", "u")], 8.0);
        one.merge(other);
        assert_eq!(one.total("corelane_x"), 15.0);
        assert!(one.to_text().contains("corelane_x{topic=\"t\"} 7\n"), "{}", one.to_text());
        assert_eq!(one.total("corelane_y"), 0.0);
    }

    #[test]
    fn numbers_that_are_none_have_prometheus_names() {
        let text = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(|n| Number(n).to_string());
        assert_eq!(text, ["+Inf", "-Inf", "NaN"]);
    }
}
