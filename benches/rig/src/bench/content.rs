//! The keys and values of records.
//!
//! Values are cut from a pool that was made beforehand, one after the other, so that making a
//! record costs a copy and no two neighbours are alike.

use std::path::Path;
use std::sync::Arc;

use super::schedule::Dice;
use super::workload::{Content, Sizes, Spread, Workload};
use crate::error::{Error, Result};

/// Values repeat after so much.
const POOL_BYTES: usize = 16 << 20;
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Of text: how many words there are, and how often the n-th of them comes: as 1/n.
const WORDS: u64 = 4_000;
/// Of keys: the exponent of their frequencies.
const ZIPF: f64 = 0.99;

/// What values are cut from; shared by all producers.
#[derive(Debug)]
pub enum Pool {
    Bytes(Vec<u8>),
    /// A record a line.
    Lines(Vec<Vec<u8>>),
}

impl Pool {
    pub fn make(workload: &Workload) -> Result<Arc<Self>> {
        if let Some(path) = &workload.payload_file {
            return Ok(Arc::new(Pool::Lines(lines(path)?)));
        }
        let length = POOL_BYTES.max(4 * workload.record_bytes.most);
        let mut dice = Dice::new(workload.seed);
        let mut bytes = Vec::with_capacity(length + 16);
        match workload.value {
            Content::Random => {
                while bytes.len() < length {
                    bytes.extend_from_slice(&dice.roll().to_le_bytes());
                }
            }
            Content::Text => text(&mut bytes, length, &mut dice),
        }
        Ok(Arc::new(Pool::Bytes(bytes)))
    }

    /// Of one value, on average.
    pub fn mean_bytes(&self, sizes: Sizes) -> f64 {
        match self {
            Pool::Bytes(_) => (sizes.least + sizes.most) as f64 / 2.0,
            Pool::Lines(lines) => {
                lines.iter().map(Vec::len).sum::<usize>() as f64 / lines.len().max(1) as f64
            }
        }
    }
}

fn lines(path: &Path) -> Result<Vec<Vec<u8>>> {
    let failed = || Error::io(format!("read {}", path.display()));
    let size = std::fs::metadata(path).map_err(failed())?.len();
    if size > FILE_BYTES_MAX {
        let most = FILE_BYTES_MAX >> 20;
        return Err(Error::Usage(format!("{} is larger than {most} MiB", path.display())));
    }
    let bytes = std::fs::read(path).map_err(failed())?;
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return Err(Error::Usage(format!("{} holds no lines", path.display())));
    }
    Ok(lines)
}

fn text(out: &mut Vec<u8>, length: usize, dice: &mut Dice) {
    let words: Vec<Vec<u8>> = (0..WORDS).map(|_| word(dice)).collect();
    let zipf = Zipf::new(WORDS, 1.0);
    while out.len() < length {
        let index = usize::try_from(zipf.draw(dice)).unwrap_or(0);
        out.extend_from_slice(words.get(index).map_or(&b"a"[..], Vec::as_slice));
        out.push(b' ');
    }
}

fn word(dice: &mut Dice) -> Vec<u8> {
    const LETTERS: &[u8] = b"etaoinshrdlucmfwypvbgk";
    let length = 2 + dice.below(8);
    let letter = |_| {
        // The first ones more often, as in a language.
        let index = dice.below(LETTERS.len() as u64).min(dice.below(LETTERS.len() as u64));
        LETTERS.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or(b'e')
    };
    (0..length).map(letter).collect()
}

/// Draws numbers of which the first ones come most often (after Gray et al., "Quickly generating
/// billion-record synthetic databases").
#[derive(Debug, Clone)]
pub struct Zipf {
    count: u64,
    exponent: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    pub fn new(count: u64, exponent: f64) -> Self {
        // The formulas have a pole at 1.
        let exponent = if (exponent - 1.0).abs() < 1e-6 { 0.999_9 } else { exponent };
        let zeta = |count: u64| (1..=count).map(|n| (n as f64).powf(-exponent)).sum::<f64>();
        let (all, two) = (zeta(count), zeta(count.min(2)));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - exponent)) / (1.0 - two / all);
        Zipf { count, exponent, alpha: 1.0 / (1.0 - exponent), zeta: all, eta }
    }

    /// From 0 to below the count.
    pub fn draw(&self, dice: &mut Dice) -> u64 {
        let unit = dice.unit();
        let share = unit * self.zeta;
        if share < 1.0 || self.count < 2 {
            return 0;
        }
        if share < 1.0 + 0.5f64.powf(self.exponent) {
            return 1;
        }
        let drawn = self.count as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (drawn as u64).min(self.count - 1)
    }
}

/// One producer's way through the pool, and its keys.
#[derive(Debug)]
pub struct Writer {
    pool: Arc<Pool>,
    sizes: Sizes,
    at: usize,
    keys: Option<Keys>,
    dice: Dice,
}

#[derive(Debug)]
struct Keys {
    count: u64,
    zipf: Option<Zipf>,
    bytes: Vec<u8>,
}

impl Writer {
    /// `number` makes each producer begin elsewhere.
    pub fn new(pool: &Arc<Pool>, workload: &Workload, number: usize) -> Self {
        let mut dice =
            Dice::new(workload.seed ^ (number as u64 + 1).wrapping_mul(0xd6e8_feb8_6659));
        let at = match &**pool {
            Pool::Bytes(bytes) => dice.below(bytes.len() as u64),
            Pool::Lines(lines) => dice.below(lines.len() as u64),
        };
        let keys = (workload.keys > 0).then(|| Keys {
            count: workload.keys,
            zipf: (workload.key_spread == Spread::Zipf).then(|| Zipf::new(workload.keys, ZIPF)),
            bytes: vec![0; workload.key_bytes],
        });
        let at = usize::try_from(at).unwrap_or(0);
        Writer { pool: Arc::clone(pool), sizes: workload.record_bytes, at, keys, dice }
    }

    /// The next key, if records have one.
    pub fn key(&mut self) -> Option<&[u8]> {
        let keys = self.keys.as_mut()?;
        let number = match &keys.zipf {
            Some(zipf) => zipf.draw(&mut self.dice),
            None => self.dice.below(keys.count),
        };
        // As digits from the right, zeros before them.
        let mut left = number;
        for byte in keys.bytes.iter_mut().rev() {
            *byte = b'0' + (left % 10) as u8;
            left /= 10;
        }
        Some(&keys.bytes)
    }

    /// Puts the next value into `out`, with room for `stamp` at its start.
    pub fn value(&mut self, out: &mut Vec<u8>, stamp: Option<[u8; 8]>) {
        out.clear();
        match &*self.pool {
            Pool::Bytes(bytes) => {
                let span = (self.sizes.most - self.sizes.least) as u64 + 1;
                let more = if span > 1 { self.dice.below(span) } else { 0 };
                let length = self.sizes.least + usize::try_from(more).unwrap_or(0);
                if self.at + length > bytes.len() {
                    self.at = 0;
                }
                out.extend_from_slice(bytes.get(self.at..self.at + length).unwrap_or_default());
                self.at += length;
            }
            Pool::Lines(lines) => {
                out.extend_from_slice(lines.get(self.at).map_or(&[][..], Vec::as_slice));
                self.at = (self.at + 1) % lines.len().max(1);
            }
        }
        if let Some(stamp) = stamp {
            if out.len() < stamp.len() {
                out.resize(stamp.len(), 0);
            }
            if let Some(room) = out.first_chunk_mut() {
                *room = stamp;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::records::{Codec, compress};

    use super::*;

    fn some(workload: &Workload, count: usize) -> Vec<Vec<u8>> {
        let pool = Pool::make(workload).unwrap();
        let mut writer = Writer::new(&pool, workload, 0);
        let next = |_| {
            let mut value = Vec::new();
            writer.value(&mut value, None);
            value
        };
        (0..count).map(next).collect()
    }

    fn ratio(workload: &Workload) -> f64 {
        let block = some(workload, 64).concat();
        block.len() as f64 / compress(Codec::Zstd, None, &block).unwrap().len() as f64
    }

    #[test]
    fn text_compresses_and_random_bytes_do_not() {
        let random = Workload::default();
        assert!(ratio(&random) < 1.01);
        let text = Workload { value: Content::Text, ..Workload::default() };
        let ratio = ratio(&text);
        assert!((1.5..6.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn sizes_cover_their_range_and_nothing_else() {
        let sizes = Sizes { least: 10, most: 20 };
        let workload = Workload { record_bytes: sizes, ..Workload::default() };
        let lengths: Vec<usize> = some(&workload, 2_000).iter().map(Vec::len).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&10), Some(&20)));
        let mean = lengths.iter().sum::<usize>() as f64 / 2_000.0;
        assert!((mean - 15.0).abs() < 0.5, "{mean}");
    }

    #[test]
    fn a_stamp_stands_at_the_start() {
        let workload = Workload::default();
        let pool = Pool::make(&workload).unwrap();
        let mut value = Vec::new();
        Writer::new(&pool, &workload, 0).value(&mut value, Some(7u64.to_be_bytes()));
        assert_eq!(value.len(), 1024);
        assert_eq!(value.first_chunk(), Some(&7u64.to_be_bytes()));
    }

    #[test]
    fn keys_are_as_many_as_wanted_and_zipf_prefers_the_first() {
        for (key_spread, least, most) in [(Spread::Uniform, 0.005, 0.02), (Spread::Zipf, 0.1, 0.4)]
        {
            let workload = Workload { keys: 100, key_spread, ..Workload::default() };
            let pool = Pool::make(&workload).unwrap();
            let mut writer = Writer::new(&pool, &workload, 0);
            let keys: Vec<Vec<u8>> = (0..20_000).map(|_| writer.key().unwrap().to_vec()).collect();
            let distinct: std::collections::HashSet<_> = keys.iter().collect();
            assert_eq!(distinct.len(), 100);
            let first = keys.iter().filter(|key| key.as_slice() == b"00000000").count();
            let share = first as f64 / keys.len() as f64;
            assert!((least..most).contains(&share), "{key_spread:?} {share}");
        }
    }

    #[test]
    fn lines_of_a_file_come_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        std::fs::write(&path, "one\n\ntwo\n").unwrap();
        let workload = Workload { payload_file: Some(path.clone()), ..Workload::default() };
        let mut values = some(&workload, 4);
        values.sort();
        assert_eq!(values, [b"one".to_vec(), b"one".to_vec(), b"two".to_vec(), b"two".to_vec()]);
        std::fs::write(&path, "\n").unwrap();
        assert!(Pool::make(&workload).is_err());
    }
}
