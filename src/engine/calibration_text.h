// What a model reads when the codec's tables are measured: some of each kind of text that people
// feed to models. Its content does not matter, its variety does.
#pragma once

#include <string_view>

namespace qevict {

inline constexpr std::string_view kCalibrationText = R"text(
The ferry left the island at six in the morning, when the water was still grey and the gulls had not yet begun to quarrel over the
nets. Marta stood at the rail with her collar turned up. She had promised her brother that she would write from every town, and she
had a notebook for it, but so far the pages held nothing except a list of what she had forgotten to pack: the blue scarf, the good
knife, the letters tied with string. "You will not miss any of it," the captain had said when she told him. "Nobody ever comes back
for a scarf." He was a short man with enormous hands, and he steered with two fingers, as if the ship were a well-trained horse.

By noon the mainland rose out of the haze. There were warehouses first, then a row of cranes, then the hills behind the town, green
on one side and burnt on the other. A boy sold oranges on the quay. He asked two coins for three and, when she hesitated, three coins
for five, which was worse; she laughed, and he laughed too, because he had known that she would notice.

# Release notes, version 2.4.1

- Fixed: the parser no longer accepts a trailing comma after the last argument of a call.
- Changed: `read_table()` returns `None` instead of raising `KeyError` when the sheet is empty.
- Added: a `--jobs N` option. The default is the number of cores, at most 8.
- Known problem: on file systems without hard links the cache is copied, which takes up to 40 seconds.

```python
from collections import defaultdict

def group_by_length(words, minimum=3):
    """Maps each length to the words that have it, in the order in which they came."""
    groups = defaultdict(list)
    for word in words:
        if len(word) >= minimum:
            groups[len(word)].append(word.lower())
    return dict(sorted(groups.items()))

class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def step(self, by: int = 1) -> int:
        self.value += by
        return self.value

print(group_by_length("The quick brown fox jumps over the lazy dog".split()))
```

Question: A tank holds 360 litres. One pipe fills it in 12 minutes and another empties it in 18. Both are open. When is it full?
Answer: The first pipe brings 360 / 12 = 30 litres a minute, the second takes 360 / 18 = 20 away. Together they add 10 litres a
minute, so the tank is full after 36 minutes.

| station | opened | platforms | passengers a day |
|---------|--------|-----------|------------------|
| North   | 1887   | 6         | 41,250           |
| Harbour | 1904   | 2         | 8,930            |
| Airport | 1999   | 4         | 63,700           |

{"order": 20731, "customer": {"name": "R. Okafor", "city": "Leeds"}, "items": [{"sku": "AX-9", "count": 2, "price": 14.5},
{"sku": "BQ-11", "count": 1, "price": 129.0}], "paid": true, "note": null}

The committee met on Tuesday, 14 March, in order to review the findings of the inquiry. Three witnesses were heard. The first, an
engineer who had worked on the dam since its construction, explained that the sensors in the eastern gallery had reported rising
pressure for eleven weeks; that the reports had been forwarded, as the procedure demanded, to the regional office; and that no reply
had been received. The second witness did not recall the reports. The third produced them. It was agreed that the procedure should be
amended, so that a report without a reply within five working days is sent again to the next higher office, and that the cost of an
additional inspection, estimated at 185,000, should be met from the reserve.

    #include <stdio.h>

    static unsigned gcd(unsigned a, unsigned b) {
        while (b != 0) { unsigned t = a % b; a = b; b = t; }
        return a;
    }

    int main(void) {
        for (unsigned n = 1; n <= 20; n++)
            printf("%2u shares a factor with %u others\n", n, n - gcd(n, 60));
        return 0;
    }

Le lendemain, il pleuvait encore. Les enfants avaient construit un barrage au bout du jardin, et l'eau montait lentement autour des
pommiers. Am Abend kam der Nachbar mit zwei Laternen und einer Schaufel; er sagte nichts, er grub. Por la mañana el agua se había
ido, y sobre la hierba quedaba una capa de barro fino, lisa como papel.

Dear Ms Lindqvist, thank you for your message of 3 May. The part you describe (hinge, left, model 220) is out of production, but the
hinge of model 240 fits when the upper screw is replaced by one of 35 mm. We have put both into a parcel for you, free of charge. If
anything is missing, please call 555-0142 between nine and four. Kind regards, Workshop and Spare Parts.

How light travels through glass: in a vacuum it moves at about 299,792 kilometres a second; in ordinary window glass at roughly two
thirds of that. The ratio of the two speeds is called the refractive index. When a beam enters the glass at an angle, one side of it
is slowed before the other, and so the beam turns, as a cart turns when one wheel runs onto sand. The larger the index, the stronger
the turn. Blue light is slowed a little more than red light, which is why a prism spreads white light into a band of colours, and why
the edges of things look fringed through a cheap lens.

user: can you book the small room for thursday?
assistant: The small room is free on Thursday from 10:00 to 12:30 and after 15:00. Which of the two?
user: the later one, until five. and tell priya
assistant: Booked: small room, Thursday, 15:00 to 17:00. I have let Priya know.

She opened the notebook at last, that evening, at a table under a lamp that hummed. She wrote the date, and the name of the town, and
then, after a while, a single sentence about the oranges. It was enough. Tomorrow there would be a train, and a river, and whatever
came after the river, and she would write that down as well.
)text";

}  // namespace qevict
