//! Holds a report against `benches/report.schema.json`, for tests of everything that writes one.
//!
//! Knows the words of JSON Schema that the file uses. A word that it does not know is a violation
//! of its own, so that nothing in the file goes unchecked.

use serde_json::{Map, Value};

pub const SCHEMA: &str = include_str!("../../../report.schema.json");

/// What is wrong with a report, each with its place; none if it is as the schema says.
pub fn violations(report: &Value) -> Vec<String> {
    let root: Value = match serde_json::from_str(SCHEMA) {
        Ok(root) => root,
        Err(error) => return vec![format!("the schema itself: {error}")],
    };
    let mut check = Check { root: &root, found: Vec::new() };
    check.value(&root, report, "");
    check.found
}

struct Check<'a> {
    root: &'a Value,
    found: Vec<String>,
}

impl<'a> Check<'a> {
    fn say(&mut self, at: &str, what: String) {
        self.found.push(format!("{}: {what}", if at.is_empty() { "/" } else { at }));
    }

    fn value(&mut self, schema: &'a Value, value: &Value, at: &str) {
        let Some(words) = schema.as_object() else {
            return self.say(at, "no schema for it".to_owned());
        };
        for (word, wanted) in words {
            match word.as_str() {
                "$schema" | "$defs" | "title" | "description" => {}
                "$ref" => match wanted.as_str().and_then(|to| self.referred(to)) {
                    Some(schema) => self.value(schema, value, at),
                    None => self.say(at, format!("the schema refers to {wanted}")),
                },
                "type" => self.kind(wanted, value, at),
                "const" if wanted != value => self.say(at, format!("{value} is not {wanted}")),
                "const" => {}
                "enum" => {
                    if !wanted.as_array().is_some_and(|all| all.contains(value)) {
                        self.say(at, format!("{value} is none of {wanted}"));
                    }
                }
                "minimum" => {
                    if value.as_f64().zip(wanted.as_f64()).is_some_and(|(is, least)| is < least) {
                        self.say(at, format!("{value} is below {wanted}"));
                    }
                }
                "minLength" | "minItems" | "minProperties" => {
                    self.size(wanted, value, at, |size, limit| size >= limit);
                }
                "maxItems" | "maxProperties" => {
                    self.size(wanted, value, at, |size, limit| size <= limit);
                }
                "items" => {
                    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.value(wanted, item, &format!("{at}/{number}"));
                    }
                }
                "required" | "properties" | "additionalProperties" => {}
                other => self.say(at, format!("the schema says `{other}`, which is not checked")),
            }
        }
        if let Some(fields) = value.as_object() {
            self.fields(words, fields, at);
        }
    }

    fn referred(&self, to: &str) -> Option<&'a Value> {
        self.root.pointer(to.strip_prefix('#')?)
    }

    fn kind(&mut self, wanted: &Value, value: &Value, at: &str) {
        let is = |name: &str| match name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "number" => value.is_number(),
            "integer" => value.is_u64() || value.is_i64(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            _ => false,
        };
        let fits = match wanted {
            Value::Array(any) => any.iter().filter_map(Value::as_str).any(is),
            one => one.as_str().is_some_and(is),
        };
        if !fits {
            self.say(at, format!("{value} is no {wanted}"));
        }
    }

    fn size(&mut self, limit: &Value, value: &Value, at: &str, fits: fn(usize, usize) -> bool) {
        let size = match value {
            Value::String(text) => text.chars().count(),
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => return,
        };
        let limit = limit.as_u64().and_then(|limit| usize::try_from(limit).ok());
        if !limit.is_some_and(|limit| fits(size, limit)) {
            self.say(at, format!("{size} long, where the limit is {limit:?}"));
        }
    }

    fn fields(&mut self, words: &'a Map<String, Value>, fields: &Map<String, Value>, at: &str) {
        let required = words.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.say(at, format!("`{name}` is missing"));
            }
        }
        let known = words.get("properties").and_then(Value::as_object);
        let closed = words.get("additionalProperties") == Some(&Value::Bool(false));
        for (name, value) in fields {
            match known.and_then(|known| known.get(name)) {
                Some(schema) => self.value(schema, value, &format!("{at}/{name}")),
                None if closed => self.say(at, format!("`{name}` is not known")),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::{
        Better, Broker, Comparison, Curve, Disk, Expectation, LatencyHistogram, Leg, Loop, Machine,
        Measure, Named, Report, Row, Series, Subject, Tool, histogram,
    };

    /// One of everything.
    fn full() -> Report {
        let mut machine = Machine::here(&[std::path::Path::new("/")]);
        machine.disks.push(Disk { emulated: Some("SATA SSD".to_owned()), ..Disk::default() });
        let mut report = Report::new(Tool::here("rig"), "All", vec!["rig".to_owned()], machine);
        report.ended_early = Some("Ctrl-C".to_owned());
        report.brokers = vec![Broker {
            id: "a".to_owned(),
            name: "Apache Kafka".to_owned(),
            version: Some("4.4".to_owned()),
            addresses: vec!["127.0.0.1:9092".to_owned()],
            configs: vec![Named::new("min.insync.replicas", "1")],
            notes: vec!["a heap of 1 GiB".to_owned()],
        }];
        report.conditions = vec![Named::new("limits", "many")];
        report.legs = vec![Leg {
            broker: "a".to_owned(),
            part: "loads".to_owned(),
            seconds: 1.5,
            load_before: "1 1 1".to_owned(),
            load_after: "1 1 1".to_owned(),
        }];
        let mut recorded = histogram::new();
        recorded.saturating_record(1_234_567);
        let mut kept = LatencyHistogram::of("produce latency", &recorded);
        kept.file = Some("x.hgrm".to_owned());
        let mut row = Row::new("r", "1 KiB", Subject::Broker("a".to_owned()));
        row.kind = Loop::Open;
        row.workload.insert("record-bytes".to_owned(), json!(1024));
        row.void_reason = Some("busy".to_owned());
        row.labels = vec!["emulated".to_owned()];
        row.measures.extend(Measure::new("throughput", "MB/s", Better::Higher, &[1.0, 2.0]));
        row.histograms = vec![kept];
        row.series = vec![Series {
            name: "throughput".to_owned(),
            unit: "MB/s".to_owned(),
            every_seconds: 1.0,
            values: vec![Some(1.0), None],
        }];
        row.curve = Some(Curve {
            name: "latency".to_owned(),
            x: 1000.0,
            unit: "records/s".to_owned(),
            knee: true,
        });
        let disk = Row::new("d", "write", Subject::Disk("/".to_owned()));
        report.rows = vec![row, disk];
        report.comparisons = vec![Comparison {
            first: "r".to_owned(),
            second: "d".to_owned(),
            measure: "throughput".to_owned(),
            times_better: 0.5,
        }];
        report.expectations =
            vec![Expectation { what: "twice".to_owned(), measured: "0.5".to_owned(), met: false }];
        report.failures = vec!["something".to_owned()];
        report
    }

    #[test]
    fn a_report_with_one_of_everything_is_as_the_schema_says_and_reads_back() {
        let report = full();
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(violations(&value), Vec::<String>::new());
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn every_field_of_the_types_is_in_the_schema_and_the_other_way_round() {
        let value = serde_json::to_value(full()).unwrap();
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let names = |at: &Value| -> Vec<String> {
            let mut names: Vec<_> = at.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        let pairs = [
            ("", ""),
            ("/tool", "/properties/tool"),
            ("/machine", "/properties/machine"),
            ("/legs/0", "/properties/legs/items"),
            ("/comparisons/0", "/properties/comparisons/items"),
            ("/expectations/0", "/properties/expectations/items"),
            ("/brokers/0", "/$defs/broker"),
            ("/conditions/0", "/$defs/named"),
            ("/rows/0/measures/0", "/$defs/measure"),
            ("/rows/0/histograms/0", "/$defs/histogram"),
            ("/rows/0/series/0", "/$defs/series"),
            ("/rows/0/curve", "/$defs/row/properties/curve"),
        ];
        for (at, defined) in pairs {
            let known = schema.pointer(&format!("{defined}/properties")).unwrap();
            let is = value.pointer(at).unwrap();
            let is = names(is);
            let is: Vec<_> = is.into_iter().collect();
            assert_eq!(is, names(known), "{at}");
        }
    }

    #[test]
    fn what_is_wrong_is_found_with_its_place() {
        let mut value = serde_json::to_value(full()).unwrap();
        *value.pointer_mut("/schema").unwrap() = json!(2);
        *value.pointer_mut("/rows/0/loop").unwrap() = json!("sideways");
        *value.pointer_mut("/rows/0/histograms/0/buckets/0").unwrap() = json!([1]);
        value.pointer_mut("/rows/1").unwrap().as_object_mut().unwrap().remove("durability");
        value.pointer_mut("/machine").unwrap()["colour"] = json!("blue");
        let found = violations(&value);
        let expected = ["/schema", "/rows/0/loop", "/buckets/0", "/rows/1", "`colour`"];
        for place in expected {
            assert!(found.iter().any(|line| line.contains(place)), "{place} in {found:?}");
        }
        assert_eq!(found.len(), expected.len(), "{found:?}");
    }
}
