//! Text that came from elsewhere on its way into HTML, and figures with their units.

use std::fmt::{self, Display, Write as _};

use crate::report::row::number;

/// Shows as what it is, in text and in quoted attributes; nothing in it is markup.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(' ')?,
                c if c.is_control() || turns_around(c) => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Signs that make what follows read from the other side: a name could pass for another.
fn turns_around(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `1.50 ms`, in the unit that suits.
pub fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{} µs", number(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", number(ns / 1e6)),
        ns => format!("{} s", number(ns / 1e9)),
    }
}

/// For axes: `1.5 ms`, `20k`.
pub fn short_duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "µs"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", trimmed(value))
}

pub fn short_number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size < 10e3 => (value, ""),
        size if size < 1e6 => (value / 1e3, "k"),
        size if size < 1e9 => (value / 1e6, "M"),
        _ => (value / 1e9, "G"),
    };
    format!("{}{unit}", trimmed(value))
}

/// Three significant digits without zeros behind the point.
fn trimmed(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// How many nanoseconds a unit of time is; `None` for other units.
pub fn nanoseconds(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1.0),
        "µs" | "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        let hostile = "<script>alert('x')</script> \"&amp;\u{0}\u{202e}";
        assert_eq!(
            Text(hostile).to_string(),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &quot;&amp;amp;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn figures_have_units_that_suit() {
        let table = [(12.0, "12 ns"), (1500.0, "1.50 µs"), (2.5e6, "2.50 ms"), (61e9, "61.0 s")];
        for (ns, text) in table {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(short_duration(1.5e6), "1.5 ms");
        assert_eq!(short_duration(100e3), "100 µs");
        assert_eq!(short_duration(1e6), "1 ms");
        let table = [(0.0, "0"), (0.25, "0.25"), (2000.0, "2000"), (20e3, "20k"), (1.5e6, "1.5M")];
        for (value, text) in table {
            assert_eq!(short_number(value), text);
        }
    }
}
