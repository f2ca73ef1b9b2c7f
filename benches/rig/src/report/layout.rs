//! How the rows of a report stand on a page, the same for Markdown and HTML: sections by group,
//! under them titles, each with its rows of all subjects, and what one subject's figure is beside
//! another's.

use super::{Better, Measure, Report, Row, Subject, row::number};

/// Rows of one group, which share a heading.
#[derive(Debug)]
pub struct Section<'a> {
    pub heading: Option<&'a str>,
    pub rows: Vec<&'a Row>,
}

/// Rows that were measured alike, one a subject.
#[derive(Debug)]
pub struct Titled<'a> {
    pub title: &'a str,
    pub rows: Vec<&'a Row>,
}

/// Both in the order in which they come.
pub fn sections(report: &Report) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for row in &report.rows {
        let heading = row.group.as_deref();
        match sections.iter_mut().find(|section| section.heading == heading) {
            Some(section) => section.rows.push(row),
            None => sections.push(Section { heading, rows: vec![row] }),
        }
    }
    sections
}

impl<'a> Section<'a> {
    pub fn subjects(&self) -> Vec<&'a Subject> {
        distinct(self.rows.iter().map(|row| &row.subject))
    }

    /// A subject that has a title twice gets it again, so that no row is lost.
    pub fn titles(&self) -> Vec<Titled<'a>> {
        let mut titles: Vec<Titled<'a>> = Vec::new();
        for row in &self.rows {
            let open = titles
                .iter_mut()
                .find(|titled| titled.title == row.title && titled.row_of(&row.subject).is_none());
            match open {
                Some(titled) => titled.rows.push(row),
                None => titles.push(Titled { title: &row.title, rows: vec![row] }),
            }
        }
        titles
    }

    /// What acknowledgements mean, each with the titles it holds for.
    pub fn durabilities(&self) -> Vec<(&'a str, Vec<&'a str>)> {
        let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in self.rows.iter().filter(|row| !row.durability.is_empty()) {
            match said.iter_mut().find(|(words, _)| *words == row.durability) {
                Some((_, titles)) if titles.contains(&row.title.as_str()) => {}
                Some((_, titles)) => titles.push(&row.title),
                None => said.push((&row.durability, vec![&row.title])),
            }
        }
        said
    }
}

impl<'a> Titled<'a> {
    pub fn row_of(&self, subject: &Subject) -> Option<&'a Row> {
        self.rows.iter().copied().find(|row| row.subject == *subject)
    }

    /// One of each name, of whichever row has it first.
    pub fn measures(&self) -> Vec<&'a Measure> {
        one_of_each_name(self.rows.iter().flat_map(|row| &row.measures))
    }

    pub fn beside(&self, report: &'a Report, measure: &str) -> Vec<Beside<'a>> {
        let row = |id: &str| self.rows.iter().copied().find(|row| row.id == id);
        let of = |line: &super::Comparison| {
            let (first, second) = (row(&line.first)?, row(&line.second)?);
            Some(Beside { first, second, verdict: Verdict::of(first, second, line.times_better) })
        };
        report.comparisons.iter().filter(|line| line.measure == measure).filter_map(of).collect()
    }
}

/// One figure of two subjects.
#[derive(Debug)]
pub struct Beside<'a> {
    pub first: &'a Row,
    pub second: &'a Row,
    pub verdict: Verdict,
}

/// Of the second subject.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// So many times.
    Better(f64),
    Worse(f64),
    Same,
    /// One of the two rows says nothing, so neither does their ratio.
    Void,
}

impl Verdict {
    /// What differs by less is the same.
    const NEXT_TO_NOTHING: f64 = 0.005;

    fn of(first: &Row, second: &Row, times_better: f64) -> Self {
        if first.void_reason.is_some() || second.void_reason.is_some() {
            return Verdict::Void;
        }
        match times_better {
            times if (times - 1.0).abs() < Self::NEXT_TO_NOTHING => Verdict::Same,
            times if times > 1.0 => Verdict::Better(times),
            times => Verdict::Worse(1.0 / times),
        }
    }

    pub fn words(self) -> String {
        match self {
            Verdict::Better(times) => format!("{}× better", number(times)),
            Verdict::Worse(times) if times.is_finite() => format!("{}× worse", number(times)),
            Verdict::Worse(_) => "worse beyond measure".to_owned(),
            Verdict::Same => "the same".to_owned(),
            Verdict::Void => "void".to_owned(),
        }
    }
}

pub fn name_of(report: &Report, subject: &Subject) -> String {
    match subject {
        Subject::Disk(path) => path.clone(),
        Subject::Broker(id) => {
            let broker = report.brokers.iter().find(|broker| broker.id == *id);
            broker.map_or_else(|| id.clone(), super::Broker::title)
        }
    }
}

/// What to look for in a figure.
pub fn direction(better: Better) -> Option<&'static str> {
    match better {
        Better::Lower => Some("lower is better"),
        Better::Higher => Some("higher is better"),
        Better::Neither => None,
    }
}

/// A name means one measure in a report, whatever its unit.
pub fn one_of_each_name<'a>(all: impl Iterator<Item = &'a Measure>) -> Vec<&'a Measure> {
    let mut measures: Vec<&Measure> = Vec::new();
    for measure in all {
        if !measures.iter().any(|known| known.name == measure.name) {
            measures.push(measure);
        }
    }
    measures
}

/// In the order in which they come.
pub fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for each in all {
        if !kept.contains(&each) {
            kept.push(each);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Comparison, Machine, Tool};

    fn row(id: &str, title: &str, broker: &str) -> Row {
        Row::new(id, title, Subject::Broker(broker.to_owned()))
    }

    fn report(rows: Vec<Row>) -> Report {
        let mut report = Report::new(Tool::here("rig"), "Two", Vec::new(), Machine::default());
        report.rows = rows;
        report
    }

    #[test]
    fn a_title_that_a_subject_has_twice_stands_twice() {
        let report = report(vec![row("1", "a", "k"), row("2", "a", "c"), row("3", "a", "k")]);
        let sections = sections(&report);
        let titles = sections.first().unwrap().titles();
        let ids: Vec<Vec<&str>> =
            titles.iter().map(|t| t.rows.iter().map(|row| row.id.as_str()).collect()).collect();
        assert_eq!(ids, [vec!["1", "2"], vec!["3"]]);
    }

    #[test]
    fn a_void_row_is_compared_with_nothing() {
        let mut report = report(vec![row("1", "a", "k"), row("2", "a", "c")]);
        let line = |times_better| Comparison {
            first: "1".to_owned(),
            second: "2".to_owned(),
            measure: "m".to_owned(),
            times_better,
        };
        report.comparisons = vec![line(4.0), line(0.25), line(1.004), line(0.0)];
        let verdicts = |report: &Report| -> Vec<String> {
            let titles = sections(report).first().unwrap().titles();
            let beside = titles.first().unwrap().beside(report, "m");
            beside.iter().map(|beside| beside.verdict.words()).collect()
        };
        let expected = ["4.00× better", "4.00× worse", "the same", "worse beyond measure"];
        assert_eq!(verdicts(&report), expected);
        report.rows[1].void_reason = Some("busy".to_owned());
        assert_eq!(verdicts(&report), ["void"; 4]);
    }
}
