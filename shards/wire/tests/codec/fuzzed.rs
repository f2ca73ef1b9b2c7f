//! The bodies of the fuzz targets, on transcripts, mutated transcripts and random bytes.

use wire::{ApiKey, frame};

use crate::golden::lines;
use crate::probe::PROBES;
use crate::property::Random;

#[path = "../../../../tests/fuzz/bodies/messages.rs"]
mod bodies;

const MUTATIONS: usize = 6;
const RANDOM_INPUTS: usize = 20_000;

fn mutate(bytes: &mut [u8], from: usize, random: &mut Random) {
    for _ in 0..random.below(3).min(bytes.len() - from) {
        let at = from + random.below(bytes.len() - from);
        bytes[at] = [random.next() as u8, bytes[at] ^ 1 << random.below(8), 0xff][random.below(3)];
    }
}

#[test]
fn frames() {
    let mut random = Random(11);
    for line in lines() {
        let Some(name) = line.name.strip_suffix("Request") else { continue };
        let Some(&api) = ApiKey::ALL.iter().find(|api| api.name() == name) else { continue };
        let mut w = frame::begin_request(api, line.version, 1, Some("c")).unwrap();
        w.slice(&line.bytes);
        let bytes = frame::finish_request(w).bytes[frame::SIZE_BYTES..].to_vec();
        for _ in 0..MUTATIONS {
            let mut bytes = bytes.clone();
            mutate(&mut bytes, 0, &mut random);
            bodies::frame(&bytes);
        }
    }
}

#[test]
fn messages() {
    let mut random = Random(12);
    for line in lines().filter(|line| !line.name.ends_with("Header")) {
        let chosen = PROBES.iter().position(|probe| probe.name == line.name).unwrap();
        let mut bytes = (chosen as u16).to_be_bytes().to_vec();
        bytes.push(line.version as u8);
        bytes.extend(&line.bytes);
        for _ in 0..MUTATIONS {
            let mut bytes = bytes.clone();
            mutate(&mut bytes, 3, &mut random);
            bodies::message(&bytes);
        }
    }
}

#[test]
fn random_bytes() {
    let mut random = Random(13);
    for _ in 0..RANDOM_INPUTS {
        let bytes: Vec<u8> = (0..random.below(120)).map(|_| random.next() as u8).collect();
        bodies::frame(&bytes);
        bodies::message(&bytes);
    }
}
