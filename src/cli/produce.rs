//! `corelane produce`: records from stdin or files to a topic.

use std::path::Path;

use bytes::{Bytes, BytesMut};
use reactor::{AlignedBuf, File, OpenOptions};
use wire::records::Codec;

use super::args::{Acks, Compression, ProduceArgs, ProduceFormat};
use super::record_format::unescape;
use super::record_input::{LineFormat, Lines, MAX_LINE_BYTES, NewRecord};
use super::{cluster, settings};
use crate::client::Cluster;
use crate::client::producer::{Producer, ProducerOptions};
use crate::error::{Error, Result, note, plain};

/// Read at once from stdin or a file.
const READ_BYTES: usize = 256 << 10;

pub async fn run(args: ProduceArgs) -> Result<()> {
    let format = line_format(&args)?;
    let headers: Vec<(String, Option<Bytes>)> = settings(&args.header)?
        .into_iter()
        .map(|(name, value)| (name, Some(Bytes::from(value))))
        .collect();
    let mut cluster = cluster(&args.cluster);
    let options = ProducerOptions {
        topic: args.topic.clone(),
        acks: acks(args.acks),
        codec: codec(args.compression),
        partition: args.partition,
    };
    let producer = Producer::open(&mut cluster, options).await?;
    let mut sending = Sending { cluster, producer, headers, format };
    let outcome = sending.everything(&args).await;
    let sent = match sending.producer.acknowledged() {
        1 => format!("1 record sent to {}", args.topic),
        count => format!("{count} records sent to {}", args.topic),
    };
    match outcome {
        Ok(()) if args.quiet => Ok(()),
        Ok(()) => {
            note(sent);
            Ok(())
        }
        Err(error) => {
            note(format_args!("{sent} before the error"));
            Err(error)
        }
    }
}

struct Sending {
    cluster: Cluster,
    producer: Producer,
    headers: Vec<(String, Option<Bytes>)>,
    format: LineFormat,
}

impl Sending {
    async fn everything(&mut self, args: &ProduceArgs) -> Result<()> {
        if args.format == ProduceFormat::File {
            for path in &args.files {
                let value = Some(whole_file(path).await?);
                self.push(NewRecord { value, ..NewRecord::default() }).await?;
            }
        } else if args.files.is_empty() {
            self.lines(Source::Stdin).await?;
        } else {
            for path in &args.files {
                let file = open(path).await?;
                self.lines(Source::File { file, offset: 0, path }).await?;
            }
        }
        Ok(self.producer.flush(&mut self.cluster).await?)
    }

    async fn lines(&mut self, mut source: Source<'_>) -> Result<()> {
        let mut lines = Lines::default();
        let refused = |error: super::record_input::InputError| Error::config(error, "");
        loop {
            let read = source.read_into(lines.buffer()).await?;
            if read == 0 {
                break;
            }
            while let Some((number, text)) = lines.next_line().map_err(refused)? {
                let record = self.format.record(number, text).map_err(refused)?;
                self.push(record).await?;
            }
            // The writer has paused (a person, or `tail -f`): what is there must not wait.
            if read < READ_BYTES && matches!(source, Source::Stdin) {
                self.producer.flush(&mut self.cluster).await?;
            }
        }
        if let Some((number, text)) = lines.last_line() {
            let record = self.format.record(number, text).map_err(refused)?;
            self.push(record).await?;
        }
        Ok(())
    }

    async fn push(&mut self, mut record: NewRecord) -> Result<()> {
        record.headers.extend(self.headers.iter().cloned());
        Ok(self.producer.push(&mut self.cluster, record).await?)
    }
}

enum Source<'a> {
    Stdin,
    File { file: File, offset: u64, path: &'a Path },
}

impl Source<'_> {
    /// Appends what can be read now; 0 is the end.
    async fn read_into(&mut self, buffer: &mut BytesMut) -> Result<usize> {
        match self {
            Source::Stdin => {
                let mut taken = std::mem::take(buffer);
                taken.reserve(READ_BYTES);
                let (read, taken) = reactor::stdio::read_stdin(taken).await;
                *buffer = taken;
                read.map_err(|error| Error::config(format!("stdin: {}", plain(&error)), ""))
            }
            Source::File { file, offset, path } => {
                let block = AlignedBuf::zeroed(READ_BYTES);
                let (read, block) = file.read_at(block, *offset).await;
                let read = read.map_err(|error| unreadable(path, &error))?;
                buffer.extend_from_slice(block.get(..read).unwrap_or_default());
                *offset += read as u64;
                Ok(read)
            }
        }
    }
}

async fn open(path: &Path) -> Result<File> {
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    File::open(path, options).await.map_err(|error| unreadable(path, &error))
}

async fn whole_file(path: &Path) -> Result<Bytes> {
    let found = reactor::fs::metadata(path).await.map_err(|error| unreadable(path, &error))?;
    if found.size > MAX_LINE_BYTES as u64 {
        let what = format!("{}: longer than 64 MiB", path.display());
        return Err(Error::config(what, "no broker takes a record of this size; split it"));
    }
    let bytes = reactor::fs::read(path).await.map_err(|error| unreadable(path, &error))?;
    Ok(bytes.into())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::config(format!("{}: {}", path.display(), plain(error)), "name a file that can be read")
}

fn line_format(args: &ProduceArgs) -> Result<LineFormat> {
    let refused = |what, remedy| Err(Error::config(what, remedy));
    if args.format == ProduceFormat::File && args.files.is_empty() {
        return refused("--format file has no file to send", "name files after the topic");
    }
    if args.format != ProduceFormat::Lines && args.key_separator.is_some() {
        return refused("--key-separator is for --format lines", "leave one of them out");
    }
    let bytes = |text: &Option<String>| {
        let unescaped = text.as_deref().map(unescape).transpose();
        unescaped.map_err(|error| Error::config(error, ""))
    };
    let separator = bytes(&args.key_separator)?;
    if separator.as_ref().is_some_and(Vec::is_empty) {
        return refused("--key-separator is empty", "name the text between key and value");
    }
    Ok(LineFormat { json: args.format == ProduceFormat::Json, separator, null: bytes(&args.null)? })
}

fn acks(acks: Acks) -> i16 {
    match acks {
        Acks::None => 0,
        Acks::Leader => 1,
        Acks::All => -1,
    }
}

fn codec(compression: Compression) -> Codec {
    match compression {
        Compression::None => Codec::None,
        Compression::Gzip => Codec::Gzip,
        Compression::Snappy => Codec::Snappy,
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    }
}
