//! The bytes of a simulated file: sparse pages, so that zeros cost nothing.

use std::collections::BTreeMap;

pub(super) const PAGE: usize = 4096;
/// What a device writes as a whole.
pub(super) const SECTOR: usize = 512;

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Content {
    size: u64,
    /// Absent = zeros.
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that take room on the device.
    pub(super) fn held(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// Writes without changing the size; bytes past it stay invisible until the size grows.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let index = at / PAGE as u64;
            let within = (at % PAGE as u64) as usize;
            let (part, tail) = rest.split_at(rest.len().min(PAGE - within));
            let zeros = part.iter().all(|&b| b == 0);
            if zeros && part.len() == PAGE {
                self.pages.remove(&index);
            } else if !zeros || self.pages.contains_key(&index) {
                let page = self.pages.entry(index).or_insert_with(|| Box::new([0; PAGE]));
                page[within..within + part.len()].copy_from_slice(part);
            }
            at += part.len() as u64;
            rest = tail;
        }
    }

    pub(super) fn grow_to(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    pub(super) fn set_size(&mut self, size: u64) {
        if size < self.size {
            let keep = size.div_ceil(PAGE as u64);
            drop(self.pages.split_off(&keep));
            let within = (size % PAGE as u64) as usize;
            if within > 0
                && let Some(page) = self.pages.get_mut(&(size / PAGE as u64))
            {
                page[within..].fill(0);
            }
        }
        self.size = size;
    }

    /// Reads what is there, at most `out`; returns how much.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let n = (self.size.saturating_sub(offset)).min(out.len() as u64) as usize;
        let mut done = 0;
        while done < n {
            let at = offset + done as u64;
            let within = (at % PAGE as u64) as usize;
            let len = (PAGE - within).min(n - done);
            let part = &mut out[done..done + len];
            match self.pages.get(&(at / PAGE as u64)) {
                Some(page) => part.copy_from_slice(&page[within..within + len]),
                None => part.fill(0),
            }
            done += len;
        }
        n
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.size as usize];
        self.read(0, &mut all);
        all
    }

    /// Drops what lies past the size, which a crash makes unreachable.
    pub(super) fn trim(&mut self) {
        let size = self.size;
        drop(self.pages.split_off(&size.div_ceil(PAGE as u64)));
        let within = (size % PAGE as u64) as usize;
        if within > 0
            && let Some(page) = self.pages.get_mut(&(size / PAGE as u64))
        {
            page[within..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Content;

    #[test]
    fn bytes_read_as_written_and_zero_elsewhere() {
        let mut c = Content::default();
        c.write(4090, b"across the page");
        c.grow_to(4105);
        let mut out = [1; 20];
        assert_eq!(c.read(4088, &mut out), 17);
        assert_eq!(&out[..17], b"\0\0across the page");
        c.set_size(4092);
        c.grow_to(5000);
        assert_eq!(&c.to_vec()[4088..4096], b"\0\0ac\0\0\0\0");
        c.write(0, &[0; 4096]);
        assert_eq!(c.held(), 0);
    }
}
