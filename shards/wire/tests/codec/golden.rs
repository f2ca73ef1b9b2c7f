//! Transcripts of Kafka's own classes (`tests/golden/messages.txt.gz`): every message, version
//! and variant decodes to the values it was made from and encodes to the very same bytes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use wire::{ApiKey, EncodeError, Reader, frame};

use crate::model::{Filler, Model};
use crate::probe::probe;

/// How the variants that were filled for the last version begin.
const LAST: &str = "last-";

pub struct Line {
    pub name: String,
    pub version: i16,
    pub variant: String,
    pub bytes: Vec<u8>,
}

/// What was filled for the version it is written in.
pub fn lines() -> impl Iterator<Item = Line> {
    transcripts().filter_map(|(line, refused)| {
        let own = !line.variant.starts_with(LAST);
        assert!(!(own && refused), "{} {} is refused", line.name, line.version);
        own.then_some(line)
    })
}

/// All transcripts, and whether Java refuses to write each.
fn transcripts() -> impl Iterator<Item = (Line, bool)> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/messages.txt.gz");
    let lines = BufReader::new(GzDecoder::new(File::open(golden).unwrap())).lines();
    lines.map(|line| {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let [name, version, variant, hex] = words[..] else { panic!("{line:?} has four words") };
        let bytes = hex.strip_prefix('=').map(from_hex).unwrap_or_default();
        let (name, variant) = (name.into(), variant.into());
        (Line { name, version: version.parse().unwrap(), variant, bytes }, hex == "!")
    })
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(byte).collect()
}

/// The filling rules of `tests/golden/README.md`.
struct Variant<'v>(&'v str);

impl Filler for Variant<'_> {
    fn null(&mut self) -> bool {
        self.0 == "null"
    }

    fn keep_default(&mut self) -> bool {
        false
    }

    fn count(&mut self) -> usize {
        match self.0 {
            "empty" => 0,
            "null" => 1,
            "full" => 2,
            _ => 3,
        }
    }

    /// FNV-1a.
    fn word(&mut self, path: &str) -> u64 {
        let step = |h: u64, byte| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        path.bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }

    fn length(&mut self, word: u64) -> usize {
        match self.0 {
            "empty" => 0,
            "large" => 100 + (word & 0x7f) as usize,
            _ => (word & 0xf) as usize,
        }
    }
}

#[test]
fn every_transcript_decodes_to_its_values_and_encodes_to_its_bytes() {
    let model = Model::read();
    for line in lines().filter(|line| !line.name.ends_with("Header")) {
        let Line { name, version, variant, bytes } = line;
        let context = format!("{name} {version} {variant}");
        let typed = model.typed(&name, version);
        let value = match variant.as_str() {
            "default" => typed.defaults(),
            variant => typed.fill(&mut Variant(variant)),
        };
        assert_eq!(typed.encode(&value), bytes, "the schema, {context}");
        let seen =
            (probe(&name).recode)(version, &bytes).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(seen.left, 0, "{context}");
        assert_eq!(seen.debug, typed.debug(&value), "{context}");
        assert_eq!(seen.bytes, bytes, "{context}");
        assert_eq!(seen.owned_bytes, bytes, "{context}");
        if variant == "default" {
            let (debug, encoded) = (probe(&name).default)(version);
            assert_eq!(debug, typed.debug(&value), "{context}");
            assert_eq!(encoded.as_ref(), Ok(&bytes), "{context}");
        }
    }
}

/// A value of the last version, written in an older one: what the version lacks is dropped where
/// the schema calls it ignorable, and refused otherwise, as Java does.
#[test]
fn older_versions_drop_or_refuse_what_they_lack() {
    let model = Model::read();
    let (mut written, mut refusals) = (0, 0);
    for (line, refused) in transcripts().filter(|(line, _)| !line.name.ends_with("Header")) {
        let Some(variant) = line.variant.strip_prefix(LAST) else { continue };
        let context = format!("{} {} {}", line.name, line.version, line.variant);
        let probe = probe(&line.name);
        let last = *probe.versions.end();
        let typed = model.typed(&line.name, last);
        let bytes = typed.encode(&typed.fill(&mut Variant(variant)));
        let converted = (probe.convert)(last, line.version, &bytes).unwrap();
        match (refused, converted) {
            (true, Err(EncodeError::Field { version, .. } | EncodeError::Null { version, .. })) => {
                assert_eq!(version, line.version, "{context}");
                refusals += 1;
            }
            (false, Ok(bytes)) => {
                assert_eq!(bytes, line.bytes, "{context}");
                written += 1;
            }
            (_, converted) => panic!("{context}: refused {refused}, ours {converted:?}"),
        }
    }
    assert!(written > 100 && refusals > 100, "{written} written, {refusals} refused");
}

#[test]
fn the_transcripts_cover_every_message_version_and_variant() {
    let recorded: BTreeSet<(String, i16, String)> =
        lines().map(|line| (line.name, line.version, line.variant)).collect();
    for typed in Model::read().all() {
        for variant in ["default", "full", "null", "empty", "large"] {
            let wanted = (typed.message.name.clone(), typed.version, variant.to_string());
            assert!(recorded.contains(&wanted), "{wanted:?} is not recorded");
        }
    }
}

/// Java's headers, with the api key and version of a real API in front: what is recorded there
/// is a hash, and the layout follows from them.
#[test]
fn headers() {
    let mut headers = 0;
    for Line { name, version, variant, mut bytes } in lines() {
        let context = format!("{name} {version} {variant}");
        let mut filler = Variant(&variant);
        let mut word = |field: &str| filler.word(&format!("{name}.{field}"));
        let (correlation, client) = (word("CorrelationId") as i32, word("ClientId"));
        let correlation = if variant == "default" { 0 } else { correlation };
        if name == "RequestHeader" {
            let api_version = if version == 1 { 8 } else { 9 };
            bytes[..4].copy_from_slice(&[0, 3, 0, api_version as u8]);
            let mut r = Reader::new(&bytes);
            let header = frame::decode_request_header(&mut r).unwrap();
            assert_eq!(r.end(), Ok(()), "{context}");
            assert_eq!(header.correlation_id, correlation, "{context}");
            let letter = |i| char::from(b'a' + (((client & 0xff) as usize + i) % 26) as u8);
            let text: String = (0..filler.length(client)).map(letter).collect();
            let expected = match variant.as_str() {
                "default" => Some(String::new()),
                "null" => None,
                _ => Some(text),
            };
            assert_eq!(header.client_id.as_deref(), expected.as_deref(), "{context}");
            let client_id = header.client_id.as_deref();
            let w = frame::begin_request(ApiKey::Metadata, api_version, correlation, client_id);
            assert_eq!(w.unwrap().written()[frame::SIZE_BYTES..], bytes, "{context}");
            headers += 1;
        } else if name == "ResponseHeader" {
            let api_version = if version == 0 { 8 } else { 9 };
            let mut r = Reader::new(&bytes);
            let decoded = frame::decode_response_header(&mut r, ApiKey::Metadata, api_version);
            assert_eq!((decoded, r.end()), (Ok(correlation), Ok(())), "{context}");
            let w = frame::begin_response(ApiKey::Metadata, api_version, correlation);
            assert_eq!(w.written()[frame::SIZE_BYTES..], bytes, "{context}");
            headers += 1;
        }
    }
    assert_eq!(headers, 20);
}
