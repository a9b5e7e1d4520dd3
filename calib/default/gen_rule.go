//go:build ignore

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// byRule makes up documents of many small forms: sums and their solutions, records, tables, logs, dialogues. The
// generator is seeded, so the text is the same every time.
func byRule() []string {
	r := rand.New(rand.NewPCG(2026, 1))
	forms := []func(*rand.Rand) string{
		wordProblems, records, table, accessLog, dialogue, conversions, configuration, equations, timetable, trace, letter,
		inventory, numbersInWords, patch, phrasebook, quiz,
	}
	var out []string
	for n := 0; n < ruleQuota; {
		for _, f := range forms {
			d := f(r)
			out = append(out, d)
			n += len(d)
		}
	}
	return out
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func times(r *rand.Rand, low, high int, f func(i int) string) string {
	var b strings.Builder
	for i := range low + r.IntN(high-low+1) {
		b.WriteString(f(i))
	}
	return b.String()
}

var (
	names    = strings.Fields("Amara Ben Chiara Dmitri Elif Farid Greta Hugo Ivana Jonas Keiko Liam Mei Nadia Oskar Priya Quentin Rosa Samir Tove Uma Viktor Wanda Xavier Yara Zoltan")
	families = strings.Fields("Albrecht Bianchi Chen Dubois Eriksen Farouk García Hansen Ivanov Jansen Kowalski Lindqvist Moreau Nakamura Okoye Petrov Rossi Silva Tanaka Umarov Vargas Weber Yilmaz Zhang")
	towns    = strings.Fields("Aarhus Bologna Cusco Dakar Esbjerg Faro Graz Haifa Izmir Jaipur Kraków Lyon Maribor Nantes Oulu Porto Quito Riga Sapporo Tampere Utrecht Valencia Wrocław Yerevan Zadar")
	goods    = []string{"pencils", "apples", "bolts", "notebooks", "bottles of juice", "seed packets", "tiles", "light bulbs", "train tickets", "candles", "screws", "envelopes"}
	verbs    = []string{"buys", "packs", "counts", "orders", "sells", "sorts", "ships"}
	adverbs  = []string{"usually", "rarely", "sometimes", "almost always", "never", "on most days"}
)

func wordProblems(r *rand.Rand) string {
	return times(r, 6, 10, func(i int) string {
		who, what := pick(r, names), pick(r, goods)
		a, b, c := 2+r.IntN(40), 2+r.IntN(12), 1+r.IntN(9)
		switch r.IntN(4) {
		case 0:
			return fmt.Sprintf("Problem %d. %s %s %d boxes with %d %s each and gives %d away. How many are left?\nSolution. %d × %d = %d, and %d − %d = %d. So %d %s are left.\n\n", i+1, who, pick(r, verbs), a, b, what, c, a, b, a*b, a*b, c, a*b-c, a*b-c, what)
		case 1:
			return fmt.Sprintf("Problem %d. A train leaves %s at %02d:%02d and arrives in %s %d minutes later. When does it arrive?\nSolution. %d minutes are %d h %02d min, so it arrives at %s.\n\n", i+1, pick(r, towns), a%24, b*4, pick(r, towns), 60+a*b, 60+a*b, (60+a*b)/60, (60+a*b)%60, clock(a%24*60+b*4+60+a*b))
		case 2:
			return fmt.Sprintf("Problem %d. %s saves %d euros a week. After how many weeks can %s buy a bicycle for %d euros?\nSolution. %d ÷ %d = %.2f; after %d weeks there is enough.\n\n", i+1, who, a, who, a*b+c, a*b+c, a, float64(a*b+c)/float64(a), (a*b+c+a-1)/a)
		default:
			return fmt.Sprintf("Problem %d. What is %d %% of %d?\nSolution. %d × %d / 100 = %.2f.\n\n", i+1, 5*b, 20*a, 5*b, 20*a, float64(5*b*20*a)/100)
		}
	})
}

func clock(minutes int) string { return fmt.Sprintf("%02d:%02d", minutes/60%24, minutes%60) }

func records(r *rand.Rand) string {
	return "[\n" + strings.TrimSuffix(times(r, 8, 14, func(i int) string {
		return fmt.Sprintf("  {\"id\": %d, \"name\": \"%s %s\", \"city\": \"%s\", \"joined\": \"%d-%02d-%02d\", \"orders\": %d, \"total\": %.2f, \"active\": %t, \"tags\": [\"%s\", \"%s\"]},\n",
			1000+r.IntN(9000), pick(r, names), pick(r, families), pick(r, towns), 2009+r.IntN(15), 1+r.IntN(12), 1+r.IntN(28), r.IntN(80), 2000*r.Float64(), r.IntN(3) > 0, pick(r, []string{"new", "vip", "trade", "press"}), pick(r, []string{"email", "post", "none"}))
	}), ",\n") + "\n]"
}

func table(r *rand.Rand) string {
	cols := []string{"date", "station", "min", "max", "rain_mm", "wind"}
	return strings.Join(cols, ",") + "\n" + times(r, 20, 34, func(i int) string {
		low := -8 + 20*r.Float64()
		return fmt.Sprintf("%d-%02d-%02d,%s,%.1f,%.1f,%.1f,%s\n", 2015+i%8, 1+r.IntN(12), 1+r.IntN(28), pick(r, towns), low, low+12*r.Float64(), 9*r.ExpFloat64(), pick(r, []string{"N", "NE", "E", "SE", "S", "SW", "W", "NW", "calm"}))
	})
}

func accessLog(r *rand.Rand) string {
	return times(r, 14, 22, func(i int) string {
		return fmt.Sprintf("10.%d.%d.%d - - [%02d/Mar/2021:%02d:%02d:%02d +0000] \"%s /%s/%d HTTP/1.1\" %d %d \"-\" \"%s\"\n", r.IntN(256), r.IntN(256), r.IntN(256), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60),
			pick(r, []string{"GET", "GET", "GET", "POST", "PUT", "HEAD"}), pick(r, []string{"items", "users", "search", "images", "static", "api/v2/orders"}), r.IntN(9999), pick(r, []int{200, 200, 200, 204, 301, 304, 400, 404, 500}), r.IntN(90000), pick(r, []string{"curl/7.68", "Mozilla/5.0", "probe/1.2"}))
	})
}

func dialogue(r *rand.Rand) string {
	what := pick(r, []string{"parcel", "invoice", "reservation", "subscription", "repair", "ticket"})
	number, name := 10000+r.IntN(90000), pick(r, names)
	lines := []string{
		fmt.Sprintf("Customer: Good %s, I'm calling about my %s, number %d.", pick(r, []string{"morning", "afternoon", "evening"}), what, number),
		fmt.Sprintf("Agent: Good to hear from you. May I have your name and postcode, please?"),
		fmt.Sprintf("Customer: %s %s, %05d.", name, pick(r, families), r.IntN(99999)),
		fmt.Sprintf("Agent: Thank you. I see that the %s was %s on the %d of %s. What can I do for you?", what, pick(r, []string{"created", "changed", "sent", "confirmed", "cancelled"}), 1+r.IntN(28), pick(r, []string{"May", "June", "July", "October"})),
		fmt.Sprintf("Customer: %s", pick(r, []string{"It has not arrived yet.", "The amount seems to be wrong.", "I would like to change the date.", "I received two of them.", "The address has a mistake in it."})),
		fmt.Sprintf("Agent: I'm sorry about that. %s", pick(r, []string{"I can send a replacement today.", "Let me correct it while we speak.", "It will take about two working days.", "I have written a note for my colleagues in " + pick(r, towns) + "."})),
		fmt.Sprintf("Customer: %s", pick(r, []string{"That would be fine.", "Could you confirm that by e-mail?", "Is there a faster way?", "Thank you, that helps."})),
		fmt.Sprintf("Agent: Of course. Your reference is %c%d-%d. Is there anything else?", 'A'+rune(r.IntN(26)), r.IntN(999), r.IntN(99)),
		"Customer: No, that's all. Goodbye.",
	}
	return strings.Join(lines, "\n")
}

func conversions(r *rand.Rand) string {
	return times(r, 12, 20, func(i int) string {
		x := 1 + r.IntN(500)
		switch r.IntN(5) {
		case 0:
			return fmt.Sprintf("%d °C = %.1f °F\n", x-100, float64(x-100)*9/5+32)
		case 1:
			return fmt.Sprintf("%d km/h = %.2f m/s\n", x, float64(x)/3.6)
		case 2:
			return fmt.Sprintf("%d = 0x%x = 0b%b = 0o%o\n", x, x, x, x)
		case 3:
			return fmt.Sprintf("%d inches = %.1f cm\n", x, float64(x)*2.54)
		default:
			return fmt.Sprintf("%d s = %d min %d s\n", 60*x+x%60, (60*x+x%60)/60, x%60)
		}
	})
}

func configuration(r *rand.Rand) string {
	return times(r, 3, 5, func(i int) string {
		return fmt.Sprintf("[%s.%s]\nenabled = %t\nhost = \"%s-%d.example.net\"\nport = %d\ntimeout = \"%ds\"\nretries = %d\nweights = [%.2f, %.2f, %.2f]\n\n", pick(r, []string{"server", "cache", "queue", "mail", "database"}),
			strings.ToLower(pick(r, towns)), r.IntN(2) == 0, pick(r, []string{"alpha", "beta", "node", "edge"}), r.IntN(40), 1024+r.IntN(40000), 1+r.IntN(90), r.IntN(9), r.Float64(), r.Float64(), r.Float64())
	})
}

func equations(r *rand.Rand) string {
	return times(r, 8, 14, func(i int) string {
		a, b, x := 2+r.IntN(9), 1+r.IntN(30), -9+r.IntN(19)
		p, q := -6+r.IntN(13), -6+r.IntN(13)
		if r.IntN(2) == 0 {
			return fmt.Sprintf("(%d) %dx + %d = %d  ⟹  %dx = %d  ⟹  x = %d\n", i+1, a, b, a*x+b, a, a*x, x)
		}
		return fmt.Sprintf("(%d) x² %+dx %+d = (x %+d)(x %+d), so x = %d or x = %d\n", i+1, p+q, p*q, p, q, -p, -q)
	})
}

func timetable(r *rand.Rand) string {
	start := 5*60 + r.IntN(60)
	stops := []string{pick(r, towns), pick(r, towns), pick(r, towns), pick(r, towns)}
	return fmt.Sprintf("| stop | %s |\n|---|---|---|---|\n", strings.Join([]string{"1", "3", "5"}, " | ")) + times(r, 4, 4, func(i int) string {
		start += 7 + r.IntN(20)
		return fmt.Sprintf("| %s | %s | %s | %s |\n", stops[i], clock(start), clock(start+60), clock(start+150))
	}) + fmt.Sprintf("\nThe first bus of the day stops in %s at %s and runs %s. Change in %s for the coast.\n", stops[0], clock(start), pick(r, adverbs), stops[2])
}

func trace(r *rand.Rand) string {
	file := pick(r, []string{"loader", "parser", "session", "planner", "render"})
	return fmt.Sprintf("ERROR %s: %s (code %d)\n", file, pick(r, []string{"unexpected end of input", "connection reset by peer", "key not found", "value out of range", "permission denied"}), r.IntN(300)) +
		times(r, 5, 9, func(i int) string {
			return fmt.Sprintf("    at %s.%s (%s/%s.js:%d:%d)\n", file, pick(r, []string{"read", "open", "next", "flush", "resolve", "apply"}), pick(r, []string{"src", "lib", "core"}), file, 1+r.IntN(400), 1+r.IntN(80))
		}) + fmt.Sprintf("  caused by: retry %d of %d after %d ms\n", 1+r.IntN(5), 5, 100<<r.IntN(6))
}

func letter(r *rand.Rand) string {
	a, b := pick(r, names), pick(r, names)
	return fmt.Sprintf("Dear %s,\n\n%s\n\n%s %s\n\n%s\n%s", a,
		pick(r, []string{"thank you for the photographs, which arrived on Monday.", "I hope the move went well and the boxes are all accounted for.", "we have found the umbrella; it was behind the piano."}),
		fmt.Sprintf("I shall be in %s from the %d to the %d of next month and would be glad to see you.", pick(r, towns), 1+r.IntN(14), 15+r.IntN(14)),
		fmt.Sprintf("%s %s has asked after you and sends regards; in %s it %s rains at this time of the year.", pick(r, names), pick(r, families), pick(r, towns), pick(r, adverbs)),
		pick(r, []string{"Yours,", "With best wishes,", "Ever yours,"}), b)
}

func inventory(r *rand.Rand) string {
	total := 0.0
	body := times(r, 8, 14, func(i int) string {
		n, price := 1+r.IntN(60), 0.2+30*r.Float64()
		total += float64(n) * float64(int(price*100)) / 100
		return fmt.Sprintf("%-18s %4d × %8.2f = %10.2f\n", pick(r, goods), n, float64(int(price*100))/100, float64(n)*float64(int(price*100))/100)
	})
	return fmt.Sprintf("Delivery note %d, %s\n\n%s%-18s %27.2f\n", 10000+r.IntN(9999), pick(r, towns), body, "total", total)
}

var ones = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
var tens = strings.Fields("_ _ twenty thirty forty fifty sixty seventy eighty ninety")

func inWords(n int) string {
	switch {
	case n < 20:
		return ones[n]
	case n < 100 && n%10 == 0:
		return tens[n/10]
	case n < 100:
		return tens[n/10] + "-" + ones[n%10]
	case n < 1000 && n%100 == 0:
		return ones[n/100] + " hundred"
	case n < 1000:
		return ones[n/100] + " hundred and " + inWords(n%100)
	case n%1000 == 0:
		return inWords(n/1000) + " thousand"
	}
	return inWords(n/1000) + " thousand " + inWords(n%1000)
}

func numbersInWords(r *rand.Rand) string {
	return times(r, 8, 12, func(i int) string {
		n := r.IntN(99999)
		return fmt.Sprintf("%d is written %s.\n", n, inWords(n))
	})
}

func patch(r *rand.Rand) string {
	name, old, line := pick(r, []string{"limit", "retries", "width", "offset", "delay"}), r.IntN(90), 1+r.IntN(300)
	return fmt.Sprintf("--- a/%[1]s.py\n+++ b/%[1]s.py\n@@ -%[2]d,6 +%[2]d,7 @@\n def %[1]s(items, start=0):\n-    %[1]s = %[3]d\n+    # %[4]s\n+    %[1]s = %[5]d\n     for item in items[start:]:\n         if item.size > %[1]s:\n             continue\n         yield item\n", name, line, old, pick(r, []string{"The old value was measured on a faster disk.", "See the discussion in the review.", "Large items are handled elsewhere."}), old+1+r.IntN(50))
}

// phrases say the same in several languages.
var phrases = [][]string{
	{"Where is the station?", "Wo ist der Bahnhof?", "Où est la gare ?", "¿Dónde está la estación?", "Dov'è la stazione?", "Где вокзал?", "车站在哪里？", "駅はどこですか。", "역이 어디예요?", "أين المحطة؟"},
	{"I would like a cup of tea.", "Ich hätte gern eine Tasse Tee.", "Je voudrais une tasse de thé.", "Quisiera una taza de té.", "Vorrei una tazza di tè.", "Я хотел бы чашку чая.", "我想要一杯茶。", "お茶を一杯ください。", "차 한 잔 주세요.", "أود كوبًا من الشاي."},
	{"The book is on the table.", "Das Buch liegt auf dem Tisch.", "Le livre est sur la table.", "El libro está en la mesa.", "Il libro è sul tavolo.", "Книга лежит на столе.", "书在桌子上。", "本は机の上にあります。", "책이 책상 위에 있어요.", "الكتاب على الطاولة."},
	{"It will rain tomorrow.", "Morgen wird es regnen.", "Il va pleuvoir demain.", "Mañana va a llover.", "Domani pioverà.", "Завтра будет дождь.", "明天会下雨。", "明日は雨が降るでしょう。", "내일 비가 올 거예요.", "ستمطر غدًا."},
	{"How much does it cost?", "Wie viel kostet das?", "Combien ça coûte ?", "¿Cuánto cuesta?", "Quanto costa?", "Сколько это стоит?", "这个多少钱？", "いくらですか。", "얼마예요?", "كم ثمنه؟"},
	{"We have been waiting for an hour.", "Wir warten seit einer Stunde.", "Nous attendons depuis une heure.", "Llevamos una hora esperando.", "Aspettiamo da un'ora.", "Мы ждём уже час.", "我们等了一个小时。", "一時間待っています。", "한 시간째 기다리고 있어요.", "ننتظر منذ ساعة."},
	{"My sister lives in a small village.", "Meine Schwester wohnt in einem kleinen Dorf.", "Ma sœur habite dans un petit village.", "Mi hermana vive en un pueblo pequeño.", "Mia sorella abita in un piccolo paese.", "Моя сестра живёт в маленькой деревне.", "我姐姐住在一个小村庄。", "姉は小さな村に住んでいます。", "언니는 작은 마을에 살아요.", "أختي تسكن في قرية صغيرة."},
	{"Please close the window.", "Bitte schließen Sie das Fenster.", "Fermez la fenêtre, s'il vous plaît.", "Cierre la ventana, por favor.", "Chiuda la finestra, per favore.", "Закройте, пожалуйста, окно.", "请关上窗户。", "窓を閉めてください。", "창문을 닫아 주세요.", "أغلق النافذة من فضلك."},
}

var tongues = []string{"English", "German", "French", "Spanish", "Italian", "Russian", "Chinese", "Japanese", "Korean", "Arabic"}

func phrasebook(r *rand.Rand) string {
	return times(r, 8, 12, func(i int) string {
		p, from, to := pick(r, phrases), r.IntN(len(tongues)), r.IntN(len(tongues))
		return fmt.Sprintf("%s: %s\n%s: %s\n\n", tongues[from], p[from], tongues[to], p[to])
	})
}

func quiz(r *rand.Rand) string {
	return times(r, 5, 8, func(i int) string {
		n, m := 10+r.IntN(90), 2+r.IntN(8)
		right := r.IntN(4)
		var options strings.Builder
		for k := range 4 {
			v := n * m
			if k != right {
				v += (k - right) * (1 + r.IntN(9))
			}
			fmt.Fprintf(&options, "  %c) %d\n", 'a'+rune(k), v)
		}
		return fmt.Sprintf("%d. %s multiplies %d by %d. Which result is right?\n%s  Answer: %c, because %d × %d = %d.\n\n", i+1, pick(r, names), n, m, options.String(), 'a'+rune(right), n, m, n*m)
	})
}
