//! Why a command ends without success: one line for stderr with its remedy, and an exit code.
//!
//! Owns the table of exit codes that `corelane --help` prints, and the few ways to say something
//! outside the log. Never: exits.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

pub type Result<T> = std::result::Result<T, Error>;

/// The exit codes; scripts and service managers rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The cluster refused, or part of the work failed.
    Refused = 1,
    /// Wrong arguments or configuration (clap uses 2 as well).
    Usage = 2,
    /// The machine does not offer what the broker needs: ring, port, limit, directory.
    Machine = 3,
    /// A data directory is locked, damaged, or belongs to another broker or cluster, or not all of
    /// it could be closed.
    DataDir = 4,
    /// No broker could be reached, or none answered in time.
    Unreachable = 5,
    /// A shard ended by itself or the program met its own fault.
    Internal = 70,
    /// Ended at once by a second SIGTERM or SIGINT.
    Interrupted = 130,
}

impl Exit {
    /// For `--help` and the README.
    pub const TABLE: &'static str = "Exit codes:\n  \
        0    done\n  \
        1    the cluster refused, or part of the work failed\n  \
        2    wrong arguments or configuration\n  \
        3    the machine lacks something: io_uring, a port, a limit, a usable directory\n  \
        4    a data directory is locked, damaged or belongs to another broker,\n  \
             or not all of it could be closed\n  \
        5    no broker could be reached in time\n  \
        70   a fault of the program itself: a shard ended\n  \
        130  stopped at once by a second signal";

    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// What went wrong and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Config(Line),
    #[error("{0}")]
    Machine(Line),
    #[error("{0}")]
    DataDir(Line),
    #[error("{0}")]
    Refused(Line),
    #[error("{0}")]
    Unreachable(Line),
    #[error("{0}")]
    Internal(Line),
    /// The reader of our output went away, as `| head` does: not worth a word.
    #[error("the output was closed")]
    OutputClosed,
}

impl Error {
    /// `None` for a quiet success.
    pub fn exit(&self) -> Option<Exit> {
        match self {
            Error::Config(_) => Some(Exit::Usage),
            Error::Machine(_) => Some(Exit::Machine),
            Error::DataDir(_) => Some(Exit::DataDir),
            Error::Refused(_) => Some(Exit::Refused),
            Error::Unreachable(_) => Some(Exit::Unreachable),
            Error::Internal(_) => Some(Exit::Internal),
            Error::OutputClosed => None,
        }
    }

    pub fn config(what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Error::Config(Line::new(what, remedy))
    }

    pub fn machine(what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Error::Machine(Line::new(what, remedy))
    }

    pub fn data_dir(what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Error::DataDir(Line::new(what, remedy))
    }

    pub fn refused(what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Error::Refused(Line::new(what, remedy))
    }

    pub fn unreachable(what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Error::Unreachable(Line::new(what, remedy))
    }

    pub fn internal(what: impl fmt::Display) -> Self {
        Error::Internal(Line::new(what, ""))
    }
}

/// Always printed as one line, whatever a broker or the system put into the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line(String);

impl Line {
    /// An empty remedy is left out: some refusals explain themselves.
    fn new(what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        let (what, remedy) = (what.to_string(), remedy.to_string());
        let joined = if remedy.is_empty() { what } else { format!("{what}; {remedy}") };
        Line(joined.split(['\n', '\r']).map(str::trim).collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// To stdout, from the main thread. A reader that went away does not matter to a broker.
pub fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// One line to stderr that needs no log level.
pub fn note(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Something the operator should know although it goes on.
pub fn warn(text: impl fmt::Display) {
    note(format_args!("corelane: warning: {text}"));
}

/// An I/O error in words, without the number the standard library appends.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_its_remedy() {
        let error = Error::config("`a`\nis wrong", "write b");
        assert_eq!(error.to_string(), "`a` is wrong; write b");
        assert_eq!(error.exit().map(Exit::code), Some(2));
        assert_eq!(Error::refused("no", "").to_string(), "no");
    }

    #[test]
    fn the_help_table_lists_every_code() {
        let all = [
            Exit::Refused,
            Exit::Usage,
            Exit::Machine,
            Exit::DataDir,
            Exit::Unreachable,
            Exit::Internal,
            Exit::Interrupted,
        ];
        for exit in all {
            let code = exit.code().to_string();
            let listed = Exit::TABLE.lines().any(|l| l.split_whitespace().next() == Some(&code));
            assert!(listed, "{code} is missing");
        }
    }
}
