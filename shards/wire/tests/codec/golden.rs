//! Transcripts of Kafka's own classes (`tests/golden/messages.txt.gz`): every message, version
//! and variant decodes to the values it was made from and encodes to the very same bytes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;

use crate::model::{Filler, Model};
use crate::probe::probe;

pub struct Line {
    pub name: String,
    pub version: i16,
    pub variant: String,
    pub bytes: Vec<u8>,
}

pub fn lines() -> impl Iterator<Item = Line> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/messages.txt.gz");
    let lines = BufReader::new(GzDecoder::new(File::open(golden).unwrap())).lines();
    lines.map(|line| {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let [name, version, variant, hex] = words[..] else { panic!("{line:?} has four words") };
        Line {
            name: name.into(),
            version: version.parse().unwrap(),
            variant: variant.into(),
            bytes: from_hex(hex.strip_prefix('=').unwrap()),
        }
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
