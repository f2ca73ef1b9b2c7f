//! Rows of a report: one thing measured on one subject, with everything that came of it.

use serde::{Deserialize, Serialize};

use super::histogram::LatencyHistogram;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// One of a kind in the report; fit for a file name.
    pub id: String,
    /// Rows of one group belong under one heading.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// Rows with the same group and title were measured alike on different subjects.
    pub title: String,
    pub subject: Subject,
    /// Everything that makes the load, as it was resolved; empty where there is no such thing.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty", default)]
    pub workload: serde_json::Map<String, serde_json::Value>,
    #[serde(rename = "loop")]
    pub kind: Loop,
    /// What an acknowledgement means here, in plain words.
    pub durability: String,
    /// Why the figures say nothing of the subject, for example since the client was at its limit.
    #[serde(rename = "void", skip_serializing_if = "Option::is_none", default)]
    pub void_reason: Option<String>,
    /// For example "emulated".
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub labels: Vec<String>,
    /// How often it was measured.
    pub repeats: usize,
    pub measures: Vec<Measure>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub histograms: Vec<LatencyHistogram>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<Series>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub curve: Option<Curve>,
}

impl Row {
    pub fn new(id: impl Into<String>, title: impl Into<String>, subject: Subject) -> Self {
        Row {
            id: id.into(),
            group: None,
            title: title.into(),
            subject,
            workload: serde_json::Map::new(),
            kind: Loop::None,
            durability: String::new(),
            void_reason: None,
            labels: Vec::new(),
            repeats: 1,
            measures: Vec::new(),
            histograms: Vec::new(),
            series: Vec::new(),
            curve: None,
        }
    }

    pub fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.name == name)
    }
}

/// `{"broker": ID}` or `{"disk": PATH}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    Broker(String),
    Disk(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// A schedule fixed in advance; latency runs from the moment at which something was due.
    Open,
    /// The next one when the last one is answered: says how much goes through, not how long it
    /// takes.
    Closed,
    /// No load of requests.
    None,
}

impl Loop {
    pub fn words(self) -> &'static str {
        match self {
            Loop::Open => "open",
            Loop::Closed => "closed",
            Loop::None => "-",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
    /// Says something of the conditions, not of the subject.
    Neither,
}

/// The median of its samples, with the lowest and the highest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    pub name: String,
    pub unit: String,
    pub better: Better,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// One for each repeat or window.
    pub samples: Vec<f64>,
}

impl Measure {
    /// `None` where nothing was measured, or something that is no number.
    pub fn new(name: &str, unit: &str, better: Better, samples: &[f64]) -> Option<Self> {
        if samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let value = median(samples)?;
        Some(Measure {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better,
            value,
            low: samples.iter().copied().fold(f64::INFINITY, f64::min),
            high: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            samples: samples.to_vec(),
        })
    }

    /// `12.3 (11.9–14.0)`, without the unit.
    pub fn figures(&self) -> String {
        match self.samples.len() {
            1 => number(self.value),
            _ => format!("{} ({}–{})", number(self.value), number(self.low), number(self.high)),
        }
    }
}

/// The middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    match sorted.len() % 2 {
        0 => Some((sorted.get(middle - 1)? + upper) / 2.0),
        _ => Some(upper),
    }
}

/// Three significant digits or so, thousands apart: `2,614,206`, `0.0071`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.1 => 3,
        _ if size > 1e-9 => (1.0 - size.log10().floor()) as usize,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let (sign, digits) = text.split_at(text.len() - text.trim_start_matches('-').len());
    if decimals > 0 || digits.len() <= 4 || !value.is_finite() {
        return text;
    }
    let mut apart = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// Figures over the time of one repeat, the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub unit: String,
    pub every_seconds: f64,
    /// The first belongs to the first `every_seconds` of what was measured; `null`: nothing then.
    pub values: Vec<Option<f64>>,
}

/// Where a row lies on a curve of several, such as latency versus load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Rows with the same name lie on the same one.
    pub name: String,
    pub x: f64,
    pub unit: String,
    /// The last one before latency takes off.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub knee: bool,
}

/// How many times better the second subject's median is; below 1 is worse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Ids of rows.
    pub first: String,
    pub second: String,
    pub measure: String,
    pub times_better: f64,
}

/// What was hoped for, and whether it came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    pub what: String,
    pub measured: String,
    pub met: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_a_median_with_its_spread() {
        let measure = Measure::new("a", "MB/s", Better::Higher, &[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((measure.value, measure.low, measure.high), (2.0, 1.0, 3.0));
        assert_eq!(measure.figures(), "2.00 (1.00–3.00)");
        assert_eq!(Measure::new("a", "s", Better::Lower, &[]), None);
        assert_eq!(Measure::new("a", "s", Better::Lower, &[1.0, f64::NAN]), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn numbers_are_short_and_keep_what_matters() {
        let table = [
            (0.0, "0"),
            (0.000_123_4, "0.00012"),
            (0.0123, "0.012"),
            (0.1234, "0.123"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (999.6, "1000"),
            (1234.0, "1234"),
            (9_999.6, "10,000"),
            (2_614_206.4, "2,614,206"),
            (-123_456.0, "-123,456"),
        ];
        for (value, text) in table {
            assert_eq!(number(value), text);
        }
    }
}
