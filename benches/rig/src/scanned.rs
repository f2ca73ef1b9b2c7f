//! What Corelane itself says it scanned when it started: its metrics, or else its log.
//!
//! Apache Kafka says neither in bytes; for it there is only what the kernel counts (`procfs.rs`).

use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Bytes since the start; `None` if no metric speaks of them or there are no metrics.
pub fn by_metrics(admin: SocketAddr) -> Option<f64> {
    let text = scrape(admin).ok()?;
    sum(text.lines().filter_map(metric))
}

/// Bytes that the broker's log, from some position on, says it scanned.
pub fn by_log(log: &Path, from: u64) -> Result<Option<f64>> {
    let io = || Error::io(format!("read {}", log.display()));
    let mut file = std::fs::File::open(log).map_err(io())?;
    file.seek(SeekFrom::Start(from)).map_err(io())?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(io())?;
    Ok(sum(String::from_utf8_lossy(&text).lines().filter_map(log_line)))
}

fn scrape(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The value of a sample such as `corelane_recovery_scanned_bytes_total{shard="0"} 4096`.
fn metric(line: &str) -> Option<f64> {
    let (name, value) = line.rsplit_once(' ')?;
    let name = name.split('{').next().filter(|name| !name.starts_with('#'))?;
    let wanted = name.contains("scanned") && name.contains("bytes");
    value.parse().ok().filter(|_| wanted)
}

/// A shard's last word:
/// `shard 0: 6 partitions are open and 0 offline after 9 ms; 4096 bytes scanned`. Lines of single
/// partitions speak of the same bytes.
fn log_line(line: &str) -> Option<f64> {
    let (before, _) = line.split_once(" bytes scanned")?;
    let (_, before) = before.split_once(" partitions are open ")?;
    before.rsplit(' ').next()?.parse().ok()
}

fn sum(counts: impl Iterator<Item = f64>) -> Option<f64> {
    counts.fold(None, |sum, count| Some(sum.unwrap_or(0.0) + count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_are_summed_over_shards() {
        let open = "partitions are open and 0 offline after 9 ms;";
        let text = format!(
            "ready\nINFO recovered /d/t-1: 1000 bytes scanned, 5 cut off\n\
             INFO shard 0: 3 {open} 4096 bytes scanned, 0 cut off\n\
             INFO shard 1: 3 {open} 1000 bytes scanned, 5 cut off\n"
        );
        assert_eq!(sum(text.lines().filter_map(log_line)), Some(5096.0));
        assert_eq!(sum("ready\n".lines().filter_map(log_line)), None);
    }

    #[test]
    fn metrics_are_summed_over_shards() {
        let text = "# HELP corelane_recovery_scanned_bytes_total Bytes scanned 7\n\
                    corelane_recovery_scanned_bytes_total{shard=\"0\"} 4096\n\
                    corelane_recovery_scanned_bytes_total{shard=\"1\"} 4\n\
                    corelane_log_bytes 9\n";
        assert_eq!(sum(text.lines().filter_map(metric)), Some(4100.0));
    }
}
