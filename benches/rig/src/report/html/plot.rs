//! A plot as inline SVG that fills the width it is given: lines are stretched with it, but neither
//! words, markers nor the thickness of lines are, so that it reads the same on a phone.
//!
//! The lines of a plot differ by dashes and markers as well as by colour.

use std::fmt::Write as _;

use super::axis::Axis;
use super::text::Text;

/// Kinds of colours, dashes and markers that the style sheet knows; more begin again.
pub const KINDS: usize = 6;
/// Units of a plot's inner view box, both ways.
const UNITS: f64 = 1000.0;

/// Shapes that markers refer to; once on a page.
pub const MARKERS: &str = r#"<svg class="shapes" aria-hidden="true"><defs>
<circle id="m0" r="4.5"/><rect id="m1" x="-4" y="-4" width="8" height="8"/>
<path id="m2" d="M0-5.5 5 4H-5Z"/><path id="m3" d="M0-6 6 0 0 6-6 0Z"/>
<path id="m4" d="M-5-5 5 5M-5 5 5-5"/><path id="m5" d="M0-6V6M-6 0H6"/>
</defs></svg>
"#;

#[derive(Debug)]
pub struct Plot {
    /// One of a kind on the page, fit for an id.
    pub id: String,
    pub title: String,
    /// In words, for those who do not see it.
    pub description: String,
    pub x: Axis,
    /// What is to the right; what is upwards, the title says.
    pub x_label: String,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// Upright lines with a word: position, text, colour.
    pub notes: Vec<(f64, String, usize)>,
    /// Under the plot.
    pub remark: Option<String>,
}

#[derive(Debug, Default)]
pub struct Line {
    pub name: String,
    /// Behind the name in the legend.
    pub figures: String,
    pub colour: usize,
    pub dash: usize,
    /// Between them there is nothing to draw.
    pub pieces: Vec<Vec<(f64, f64)>>,
    pub markers: Vec<Marker>,
}

#[derive(Debug)]
pub struct Marker {
    pub x: f64,
    pub y: f64,
    /// What it says when pointed at.
    pub words: String,
    pub void: bool,
}

impl Plot {
    pub fn write(&self, out: &mut String) {
        let id = &self.id;
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<figure class=\"plot\">\n<figcaption>{}</figcaption>\n<div class=\"frame noted\" \
             style=\"--notes:{}\">\n<div class=\"y\" aria-hidden=\"true\">",
            Text(&self.title),
            self.notes.len()
        );
        for (value, name) in &self.y.ticks {
            let at = 100.0 * self.y.at(*value);
            let _ = write!(out, "<span style=\"bottom:{at:.1}%\">{}</span>", Text(name));
        }
        let _ = write!(
            out,
            "</div>\n<svg class=\"area\" role=\"img\" aria-labelledby=\"{id}t {id}d\">\
             <title id=\"{id}t\">{}</title><desc id=\"{id}d\">{}</desc>\n",
            Text(&self.title),
            Text(&self.description)
        );
        self.inner(out);
        for line in &self.lines {
            self.markers(out, line);
        }
        self.notes(out);
        out.push_str("</svg>\n");
        self.below(out);
        out.push_str("</div>\n");
        self.legend(out);
        out.push_str("</figure>\n");
    }

    fn inner(&self, out: &mut String) {
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {UNITS} {UNITS}\" preserveAspectRatio=\"none\" width=\"100%\" \
             height=\"100%\"><path class=\"grid\" d=\""
        );
        for (value, _) in &self.y.ticks {
            let _ = write!(out, "M0 {:.1}H{UNITS}", UNITS * (1.0 - self.y.at(*value)));
        }
        for (value, _) in &self.x.ticks {
            let _ = write!(out, "M{:.1} 0V{UNITS}", UNITS * self.x.at(*value));
        }
        out.push_str("\"/>\n");
        for line in &self.lines {
            let (colour, dash) = (line.colour % KINDS, line.dash % KINDS);
            let _ = write!(out, "<path class=\"line c{colour} d{dash}\" d=\"");
            for piece in &line.pieces {
                for (number, (x, y)) in piece.iter().enumerate() {
                    let sign = if number == 0 { 'M' } else { 'L' };
                    let (x, y) = (UNITS * self.x.at(*x), UNITS * (1.0 - self.y.at(*y)));
                    let _ = write!(out, "{sign}{x:.1} {y:.1}");
                }
                // A point alone shows by its round end.
                if piece.len() == 1 {
                    out.push_str("h0.1");
                }
            }
            out.push_str("\"/>\n");
        }
        out.push_str("</svg>\n");
    }

    fn markers(&self, out: &mut String, line: &Line) {
        for marker in &line.markers {
            let (x, y) = (100.0 * self.x.at(marker.x), 100.0 * (1.0 - self.y.at(marker.y)));
            let void = if marker.void { " void" } else { "" };
            let (colour, shape) = (line.colour % KINDS, line.dash % KINDS);
            let _ = writeln!(
                out,
                "<use class=\"marker c{colour}{void}\" href=\"#m{shape}\" x=\"{x:.1}%\" \
                 y=\"{y:.1}%\"><title>{}</title></use>",
                Text(&marker.words)
            );
        }
    }

    /// Above the plot, where no line is in their way; each on a line of its own.
    fn notes(&self, out: &mut String) {
        for (number, (x, words, colour)) in self.notes.iter().enumerate() {
            let at = 100.0 * self.x.at(*x);
            let side = match at {
                at if at > 75.0 => "end",
                at if at < 25.0 => "start",
                _ => "middle",
            };
            let (kind, up) = (colour % KINDS, 8 + 20 * number);
            let _ = writeln!(
                out,
                "<line class=\"note c{kind}\" x1=\"{at:.1}%\" x2=\"{at:.1}%\" y1=\"-{}\" y2=\"100%\"/>\
                 <text class=\"note\" x=\"{at:.1}%\" y=\"-{up}\" text-anchor=\"{side}\">{}</text>",
                up - 4,
                Text(words)
            );
        }
    }

    fn below(&self, out: &mut String) {
        out.push_str("<div class=\"x\" aria-hidden=\"true\">");
        let crowded = self.x.ticks.len() > 5;
        let last = self.x.ticks.len().saturating_sub(1);
        for (number, (value, name)) in self.x.ticks.iter().enumerate() {
            let at = 100.0 * self.x.at(*value);
            // On a narrow page every second name goes, counted from the end.
            let class = if crowded && (last - number) % 2 == 1 { " class=\"spare\"" } else { "" };
            let _ = write!(out, "<span{class} style=\"left:{at:.1}%\">{}</span>", Text(name));
        }
        out.push_str("</div>\n");
        let _ = writeln!(out, "<div class=\"axes\">{} →</div>", Text(&self.x_label));
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<ul class=\"legend\">\n");
        for line in &self.lines {
            let (colour, dash) = (line.colour % KINDS, line.dash % KINDS);
            let _ = write!(
                out,
                "<li><svg class=\"swatch\" width=\"36\" height=\"14\" aria-hidden=\"true\">\
                 <path class=\"line c{colour} d{dash}\" d=\"M2 7H34\"/>"
            );
            if !line.markers.is_empty() {
                let _ = write!(
                    out,
                    "<use class=\"marker c{colour}\" href=\"#m{dash}\" x=\"18\" y=\"7\"/>"
                );
            }
            let _ = write!(out, "</svg> <span><b>{}</b>", Text(&line.name));
            if !line.figures.is_empty() {
                let _ = write!(out, ": {}", Text(&line.figures));
            }
            out.push_str("</span></li>\n");
        }
        out.push_str("</ul>\n");
        if let Some(remark) = &self.remark {
            let _ = writeln!(out, "<p class=\"remark\">{}</p>", Text(remark));
        }
    }
}
