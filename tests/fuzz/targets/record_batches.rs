#![no_main]

#[path = "../bodies/records.rs"]
#[allow(dead_code)]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::record_batches(data));
