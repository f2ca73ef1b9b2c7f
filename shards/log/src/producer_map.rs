//! The producers of a partition by id, in pages that copies share until one of them is written to.
//!
//! Owns: finding a producer, growing, and copies for snapshots. A hundred thousand producers take
//! some 10 MB, so nothing that a request waits for may touch all of them: the map grows by one page
//! at a time, and a copy is as many pointers as there are pages. Pure; what a producer is, is
//! `producer_state`'s matter.
//!
//! Linear hashing: of `n` pages, where `2^k <= n < 2^(k+1)`, a producer's is numbered by the last
//! `k + 1` bits of its hash, or by the last `k` if there is no such page yet. In a page producers
//! are sorted by id.

use std::rc::Rc;

use ahash::RandomState;

use crate::producer_state::Producer;

/// Producers a page, on average: another page comes when there are more.
pub(crate) const PAGE_FILL: usize = 64;
/// Room that a full page gets.
const PAGE_GROWS_BY: usize = 16;

pub(crate) type Slot = (i64, Producer);
pub(crate) type Page = Vec<Slot>;

#[derive(Clone, Debug, Default)]
pub(crate) struct ProducerMap {
    hasher: RandomState,
    pages: Vec<Rc<Page>>,
    len: usize,
}

impl ProducerMap {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn pages(&self) -> &[Rc<Page>] {
        &self.pages
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Producer)> {
        self.pages.iter().flat_map(|page| page.iter()).map(|(id, producer)| (*id, producer))
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Producer> {
        let page = self.pages.get(self.page_of(id))?;
        let at = find(page, id).ok()?;
        page.get(at).map(|(_, producer)| producer)
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        self.get(id).is_some()
    }

    pub(crate) fn get_mut(&mut self, id: i64) -> Option<&mut Producer> {
        let number = self.page_of(id);
        let page = self.pages.get_mut(number)?;
        let at = find(page, id).ok()?;
        Rc::make_mut(page).get_mut(at).map(|(_, producer)| producer)
    }

    /// The producer, which is `made` now if it was not there.
    pub(crate) fn or_insert_with(
        &mut self,
        id: i64,
        make: impl FnOnce() -> Producer,
    ) -> &mut Producer {
        if !self.contains(id) {
            self.grow();
            self.len += 1;
            let number = self.page_of(id);
            put(Rc::make_mut(&mut self.pages[number]), (id, make()));
        }
        self.get_mut(id).unwrap_or_else(|| unreachable!("it is there, or was just put there"))
    }

    pub(crate) fn insert(&mut self, id: i64, producer: Producer) {
        match self.get_mut(id) {
            Some(known) => *known = producer,
            None => {
                self.or_insert_with(id, || producer);
            }
        }
    }

    /// Lets go of producers, in all pages.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(i64, &Producer) -> bool) -> usize {
        let gone = (0..self.pages.len()).map(|number| self.retain_page(number, &mut stays)).sum();
        self.give_back();
        gone
    }

    /// The same in one page, whose number may be past the last.
    pub(crate) fn retain_page(
        &mut self,
        number: usize,
        mut stays: impl FnMut(i64, &Producer) -> bool,
    ) -> usize {
        let Some(page) = self.pages.get_mut(number) else { return 0 };
        if page.iter().all(|(id, producer)| stays(*id, producer)) {
            return 0;
        }
        let page = Rc::make_mut(page);
        let before = page.len();
        page.retain(|(id, producer)| stays(*id, producer));
        page.shrink_to_fit();
        let gone = before - page.len();
        self.len -= gone;
        gone
    }

    /// Lets go of the pages if there is no producer left.
    pub(crate) fn give_back(&mut self) {
        if self.len == 0 {
            self.pages = Vec::new();
        }
    }

    /// About the memory held, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let page = |page: &Rc<Page>| {
            // What lies beside a producer is alike among those that came together.
            let beside = page.first().map_or(0, |(_, producer)| producer.bytes_beside());
            size_of::<Page>() + page.capacity() * size_of::<Slot>() + page.len() * beside
        };
        self.pages.capacity() * size_of::<Rc<Page>>() + self.pages.iter().map(page).sum::<usize>()
    }

    fn page_of(&self, id: i64) -> usize {
        page_of(self.hasher.hash_one(id), self.pages.len())
    }

    /// Makes room for one more: the page whose turn it is gives half of it to a new one.
    fn grow(&mut self) {
        let count = self.pages.len();
        if count == 0 {
            self.pages.push(Rc::new(Page::new()));
            return;
        }
        if self.len < count * PAGE_FILL {
            return;
        }
        let full = count - (1 << count.ilog2());
        let belongs_there = |(id, _): &Slot| page_of(self.hasher.hash_one(id), count + 1) == count;
        let (there, here) = self.pages[full].iter().cloned().partition::<Page, _>(belongs_there);
        self.pages[full] = Rc::new(here);
        self.pages.push(Rc::new(there));
    }
}

impl PartialEq for ProducerMap {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().all(|(id, ours)| other.get(id) == Some(ours))
    }
}

impl Eq for ProducerMap {}

fn page_of(hash: u64, pages: usize) -> usize {
    let bits = pages.max(1).ilog2();
    let number = (hash & ((2 << bits) - 1)) as usize;
    if number < pages { number } else { (hash & ((1 << bits) - 1)) as usize }
}

fn find(page: &Page, id: i64) -> Result<usize, usize> {
    page.binary_search_by_key(&id, |(id, _)| *id)
}

fn put(page: &mut Page, slot: Slot) {
    if page.len() == page.capacity() {
        page.reserve_exact(PAGE_GROWS_BY);
    }
    let (Ok(at) | Err(at)) = find(page, slot.0);
    page.insert(at, slot);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn producer(epoch: i16) -> Producer {
        Producer::new(epoch)
    }

    #[test]
    fn pages_stay_small_however_many_come_and_no_step_touches_more_than_one() {
        let mut map = ProducerMap::default();
        for id in 0..20_000 {
            let before: Vec<*const Page> = map.pages.iter().map(Rc::as_ptr).collect();
            map.insert(id, producer(0));
            let kept = before.iter().zip(&map.pages).filter(|(a, b)| **a == Rc::as_ptr(b)).count();
            assert!(before.len() - kept <= 1, "{id}");
        }
        assert!(map.pages.len() >= 20_000 / PAGE_FILL);
        let largest = map.pages.iter().map(|page| page.len()).max().unwrap();
        assert!(largest < 4 * PAGE_FILL, "{largest}");
        assert!(map.memory_bytes() / 20_000 < 2 * size_of::<Slot>(), "{}", map.memory_bytes());
    }

    #[test]
    fn a_copy_stays_as_it_was_and_costs_the_pages_that_change() {
        let mut map = ProducerMap::default();
        for id in 0..10_000 {
            map.insert(id, producer(0));
        }
        let copy = map.clone();
        assert!(map.pages.iter().zip(&copy.pages).all(|(a, b)| Rc::ptr_eq(a, b)));
        map.get_mut(77).unwrap().epoch = 5;
        assert_eq!(copy.get(77).map(|it| it.epoch), Some(0));
        assert_eq!(map.get(77).map(|it| it.epoch), Some(5));
        let shared = map.pages.iter().zip(&copy.pages).filter(|(a, b)| Rc::ptr_eq(a, b)).count();
        assert_eq!(shared, map.pages.len() - 1);
        assert_eq!(map.retain(|id, _| id >= 9_990), 9_990);
        assert_eq!((map.len(), copy.len()), (10, 10_000));
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(
            steps in proptest::collection::vec((0i64..700, 0i16..4, 0u8..8), 0..3_000)
        ) {
            let (mut map, mut model) = (ProducerMap::default(), BTreeMap::new());
            for (id, epoch, step) in steps {
                if step == 0 {
                    let gone = map.retain(|known, _| known % 7 != id % 7);
                    let before = model.len();
                    model.retain(|known, _| known % 7 != id % 7);
                    prop_assert_eq!(gone, before - model.len());
                } else {
                    map.insert(id, producer(epoch));
                    model.insert(id, epoch);
                }
                prop_assert_eq!(map.get(id).map(|it| it.epoch), model.get(&id).copied());
                prop_assert_eq!(map.len(), model.len());
            }
            let mut all: Vec<(i64, i16)> = map.iter().map(|(id, it)| (id, it.epoch)).collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(model));
        }
    }
}
