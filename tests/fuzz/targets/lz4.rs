#![no_main]

#[path = "../bodies/records.rs"]
#[allow(dead_code)]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    bodies::compressed_block(wire::records::Codec::Lz4, data);
});
