package store

// history verifies the change history against its segments and meta.
func (c *check) history() error {
	var first, last, count, size int64
	err := scan(c.db, tableBounds(tableHistory), func(key, value []byte) error {
		id, _, _ := idOfKey(key)
		err := decodeHistory(key, value, func(e HistoryEntry) bool {
			if first == 0 {
				first = e.Zxid
			}
			if e.Zxid <= last {
				c.report("history", formatKey(key), "zxid %#x is not above %#x", e.Zxid, last)
			}
			last = e.Zxid
			count += int64(len(e.Changes))
			return true
		})
		if err != nil {
			c.reportRecord("history", key, err)
		}
		last = max(last, id)
		size += int64(len(key) + len(value))
		return nil
	})
	if err != nil {
		return err
	}
	says := &c.meta.counts
	if last > c.meta.zxid {
		c.report("history", "meta", "the history has zxid %#x, the last is %#x", last, c.meta.zxid)
	}
	if first != 0 && first <= says.HistoryFirst {
		c.report("history", "meta", "the history has zxid %#x, meta says it begins after %#x", first, says.HistoryFirst)
	}
	if count != says.HistoryCount || size != says.HistoryBytes {
		c.report("history", "meta", "there are %d changes in %d bytes, meta says %d in %d",
			count, size, says.HistoryCount, says.HistoryBytes)
	}
	return c.segments()
}

// segments verifies that the segments add up to the history.
func (c *check) segments() error {
	sum := c.meta.open
	err := scan(c.db, tableBounds(tableSegment), func(key, value []byte) error {
		one, err := decodeSegment(key, value)
		if err != nil {
			c.reportRecord("history", key, err)
			return nil
		}
		sum.count += one.count
		sum.bytes += one.bytes
		return nil
	})
	if says := &c.meta.counts; err == nil && (sum.count != says.HistoryCount || sum.bytes != says.HistoryBytes) {
		c.report("history", "meta", "the segments have %d changes in %d bytes, meta says %d in %d",
			sum.count, sum.bytes, says.HistoryCount, says.HistoryBytes)
	}
	return err
}
