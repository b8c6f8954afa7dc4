"""Grammar of the invented contact documents: what `make_contacts` writes, as data.

Notation of a template:

* ``{symbol}`` in lower case becomes one of the alternatives of `GRAMMAR`, expanded in turn;
  a symbol that ends in ``_cue`` is left out where a document does without cues;
* ``{LABEL}`` in upper case becomes that field of the contact at hand, its tokens get this label;
* ``[...]`` is left out if a field inside it is missing;
* ``#`` becomes a digit, a line break starts a new line.

All that is outside a ``{LABEL}`` is NOTCONTACT. Telephone numbers come from the ranges that the
regulators keep free for fiction, mail and web addresses from the domains reserved by RFC 2606:
no document can hold the details of a real person.
"""

from . import _contacts_words as words

# Field: (probability that a contact has it, template). Address fields depend on the country.
FIELDS = {
    "FIRSTNAME": (0.97, "{me_first}"),
    "MIDDLENAME": (0.25, "{middle}"),
    "LASTNAME": (0.95, "{me_last}"),
    "NICKNAME": (0.3, "{nickname}"),
    "SUFFIX": (0.16, "{suffix}"),
    "TITLE": (0.22, "{title}"),
    "JOBTITLE": (0.6, "{job}"),
    "DEPARTMENT": (0.35, "{department}"),
    "COMPANYNAME": (0.65, "{me_company}"),
    "EMAIL": (0.7, "{email}"),
    "INSTANTMESSAGE": (0.3, "{handle}"),
    "WEBPAGE": (0.35, "{webpage}"),
}
PHONE_PROBABILITY = 0.8
ADDRESS_PROBABILITY = 0.5
COUNTRY_PROBABILITY = 0.4

# Country code: weight. Each code names the symbols {code_phone}, {code_street}, ... of GRAMMAR.
COUNTRIES = {"us": 9, "uk": 4, "ca": 2, "au": 2, "de": 3, "fr": 3, "se": 2}
ADDRESS_LAYOUTS = {
    "us": "{ADDRESSLINE}\n{CITY}[, {STATE}] {POSTALCODE}[\n{COUNTRY}]",
    "uk": "{ADDRESSLINE}\n{CITY}[\n{STATE}]\n{POSTALCODE}[\n{COUNTRY}]",
    "ca": "{ADDRESSLINE}\n{CITY}[ {STATE}] {POSTALCODE}[\n{COUNTRY}]",
    "au": "{ADDRESSLINE}\n{CITY}[ {STATE}] {POSTALCODE}[\n{COUNTRY}]",
    "de": "{ADDRESSLINE}\n{POSTALCODE} {CITY}[\n{COUNTRY}]",
    "fr": "{ADDRESSLINE}\n{POSTALCODE} {CITY}[ - {COUNTRY}]",
    "se": "{ADDRESSLINE}\n{POSTALCODE} {CITY}[, {COUNTRY}]",
}
STATE_PROBABILITY = {"us": 0.95, "uk": 0.3, "ca": 0.9, "au": 0.9}

# The lines of a block of contact details, group by group.
NAME_LINES = (
    "[{TITLE} ]{FIRSTNAME}[ {MIDDLENAME}] {LASTNAME}[{comma} {SUFFIX}]\n",
    "[{TITLE} ]{FIRSTNAME}[ {MIDDLENAME}] {LASTNAME}[{comma} {SUFFIX}]\n",
    '[{TITLE} ]{FIRSTNAME}[ "{NICKNAME}"] {LASTNAME}[{comma} {SUFFIX}]\n',
    "{FIRSTNAME}[ ({NICKNAME})] {LASTNAME}[{comma} {SUFFIX}]\n",
    "{LASTNAME}, {FIRSTNAME}[ {MIDDLENAME}][, {TITLE}][, {SUFFIX}]\n",
    "{name_cue}{FIRSTNAME}[ {MIDDLENAME}] {LASTNAME}[, {JOBTITLE}]\n",
    '{FIRSTNAME}[ "{NICKNAME}"]\n',
    "[{TITLE} ]{LASTNAME}[ ({COMPANYNAME})]\n",
)
ROLE_LINES = (
    "[{JOBTITLE}\n][{DEPARTMENT}\n][{COMPANYNAME}\n]",
    "[{JOBTITLE}, {COMPANYNAME}\n]",
    "[{COMPANYNAME}\n][{DEPARTMENT}\n]",
    "[{COMPANYNAME} - {DEPARTMENT}\n]",
    "[{JOBTITLE} | {DEPARTMENT}\n][{COMPANYNAME}\n]",
    "[{title_cue}{JOBTITLE}\n][{company_cue}{COMPANYNAME}\n]",
    "",
)
PLACE_LINES = (
    "[{address}\n]",
    "[{address}\n]",
    "[{address_cue}{address_in_line}\n]",
    "[{address_in_line}\n]",
    "[{CITY}[, {COUNTRY}]\n]",
)
REACH_LINES = (
    "[{tel_cue}{PHONENUMBER}\n][{mail_cue}{EMAIL}\n][{web_cue}{WEBPAGE}\n][{im_cue}{INSTANTMESSAGE}\n]",
    "[{tel_cue}{PHONENUMBER}\n{fax_cue}{PHONENUMBER}\n][{im_cue}{INSTANTMESSAGE}\n][{mail_cue}{EMAIL}\n]",
    "[{tel_cue}{PHONENUMBER}][ {bar} {mail_cue}{EMAIL}][ {bar} {web_cue}{WEBPAGE}]\n",
    "[{mail_cue}{EMAIL}][ {bar} {im_cue}{INSTANTMESSAGE}]\n[{web_cue}{WEBPAGE}\n]",
    "[{web_cue}{WEBPAGE}\n][{mail_cue}<{EMAIL}>\n][{tel_cue}{PHONENUMBER} / {PHONENUMBER}\n]",
    "[{EMAIL}\n][{PHONENUMBER}\n][{fax_cue}{PHONENUMBER}\n][{WEBPAGE}\n]",
)
# Contact details within a sentence.
INLINE = (
    "[{TITLE} ]{FIRSTNAME} {LASTNAME}[ of {COMPANYNAME}][ at {PHONENUMBER}][ or {EMAIL}]",
    "{FIRSTNAME} {LASTNAME}[, {JOBTITLE},][ on {PHONENUMBER}][ (or {INSTANTMESSAGE})]",
    "[{TITLE} ]{LASTNAME}[ in {CITY}][ by e-mail: {EMAIL}][, phone {PHONENUMBER}]",
    "{FIRSTNAME}[ <{EMAIL}>][ or {PHONENUMBER}]",
    "{FIRSTNAME} {LASTNAME}[, {DEPARTMENT}][, {address_in_line}][, {EMAIL}][, {WEBPAGE}]",
    "{FIRSTNAME} {LASTNAME}[ - {JOBTITLE}][, {COMPANYNAME}][ - {PHONENUMBER}][ - {EMAIL}]",
)

# Cues that open and close contact details; the same words occur elsewhere as NOTCONTACT.
BEGIN_CUES = {
    "signature": (
        "Regards,", "Kind regards,", "Best regards,", "Best,", "Thanks,", "Many thanks,", "Cheers,",
        "Sincerely,", "Yours sincerely,", "Yours faithfully,", "Mit freundlichen Grüßen", "--",
        "--", "Cordialement,", "Take care,", "Respectfully yours,",
    ),
    "card": (
        "Contact:", "Contact information", "For more information:", "Enquiries:", "Media contact:",
        "How to reach us", "Business card", "Address book entry", "Ship to:", "Bill to:", "Venue:",
        "Your contact:", "New member:", "Speaker:", "***",
    ),
    "inline": (
        "Please contact", "Please call", "You can reach", "Questions? Write to", "RSVP to",
        "Send comments to", "For details ask", "My new contact is", "Get in touch with", "Contact",
        "Forward it to",
    ),
}  # fmt: skip
END_CUES = {
    "signature": (
        "--", "Sent from my phone", "This message is confidential.", "***", "PS:", "Attachment:",
        "Please think before you print.", "Opinions are my own.", "___", "Enclosures",
    ),
    "card": (
        "Office hours by appointment", "Back to top", "---", "Edit this entry",
        "Map and directions",
        "***", "Last updated {day} {month} {year}", "End of record", "Open {weekday} to {weekday}",
    ),
    "inline": (
        "any time.", "for details.", "during office hours.", "with questions.", "by {weekday}.",
        "if you need help.", "before {date}.",
    ),
}  # fmt: skip

_TEXT = {
    "sentence": (
        "{clause}.",
        "{clause}.",
        "{clause}.",
        "{clause}, {conj} {clause_low}.",
        "{clause} {prep} the {adj} {noun}.",
        "{adverb}, the {noun} {prep} the {noun} was {adj}.",
        "Could you {verb} the {noun} {prep} {weekday}?",
        "Did {person} {verb} the {adj} {noun}?",
        "Please {verb} the {noun} and {verb} the {adj} {noun}.",
        "Please contact the {noun} {noun} if the {noun} is {adj}.",
        "You can reach the {noun} from the {adj} {noun}.",
        "I met {person} in {city} last {weekday}.",
        "I met {me_first} {prep} the {noun}.",
        "{me_first} will {verb} the {noun} in {month}.",
        "{person} of {company} will {verb} the {noun} on {date}.",
        "{person}, {job_low}, moved from {city} to {city}.",
        "{company} opened a {adj} {noun} in {city}, {us_state}.",
        "{company} and {me_company} {verb} a {adj} {noun}.",
        "The {noun} in {city} costs {price}.",
        "The train to {city} leaves at {time} from platform #.",
        "We paid {price} for {quantity} {noun}s on {date}.",
        "Your order {order} was shipped on {date}.",
        "Invoice {order} over {price} is due {date}.",
        "Ticket {order}: the {noun} does not {verb}.",
        "The part number is {order}, the price {price}.",
        "See chapter ##, page ###, and table #.#.",
        "For technical support dial {us_phone}.",
        "The support line {uk_phone} is {adj}.",
        "To unsubscribe write to {role}@{plain_domain}.",
        "The {noun} is at http://www.{plain_domain}/{noun}.",
        "Read more on {plain_domain} {adv_low}.",
        "{price} is {adj} for a {noun} of {order}.",
        "Room ### is {adj} until {time}.",
        "Thanks for the {adj} {noun}.",
        "Many thanks to {person} and {person} for the {noun}.",
        "Best regards from {city} to {me_first}!",
        "{weekday}, {date}: {adj} {noun} with {person}.",
        "{person} wrote: the {noun} {prep} the {noun} is {adj}.",
        "{person} and {person} {verb} it {adv_low}.",
        "The {noun} \"{adj} {noun}\" was {adj}.",
        "Dr. {last} and Prof. {last} {verb} the {noun}.",
        "Is the office at {street} Street still {adj}?",
        "The venue is {street_number} {street} Road, as {adv_low} announced.",
        "It is a {noun} - a {adj} one - {prep} the {noun}.",
        "The {department} {adv_low} called about the {noun}.",
        "{first}, {first} and {first} {verb} the {noun} in {city}.",
        "Mark will bill the {noun}; may I {verb} it?",
        "In May, Rose and Frank {verb} a {noun} in Paris.",
        "Will the Dean {verb} the grant for {person}?",
    ),
    "clause": (
        "The {noun} {prep} the {adj} {noun} is {adj}",
        "The {adj} {noun} {adv_low} needs a {noun}",
        "We {adv_low} {verb} the {noun}",
        "I {adv_low} {verb} the {adj} {noun}",
        "They {verb} the {noun} {prep} {city}",
        "A {noun} {prep} {month} is {adj}",
        "Our {noun} will {verb} the {noun}",
        "You may {verb} the {noun} {adv_low}",
        "{person} will {verb} the {noun}",
        "It was {adj} to {verb} the {noun}",
    ),
    "clause_low": (
        "the {noun} is {adj}", "we {verb} it {adv_low}", "nobody {adv_low} {verb}s the {noun}",
        "they will {verb} the {adj} {noun}", "{first} was {adj}", "it {adv_low} is",
    ),
    "conj": ("and", "but", "so", "because", "although", "while"),
    "noun": words.NOUNS,
    "adj": words.ADJECTIVES,
    "verb": words.VERBS,
    "adv_low": words.ADVERBS,
    "adverb": ("However", "Today", "Finally", "Perhaps", "Later", "So far", "As usual", "In short"),
    "prep": words.PREPOSITIONS,
    "month": words.MONTHS,
    "weekday": words.WEEKDAYS,
    "nonzero": tuple("123456789"),
    "day": tuple(str(day) for day in range(1, 29)),
    "year": tuple(str(year) for year in range(1996, 2026)),
    "date": (
        "{day} {month}", "{month} {day}, {year}", "{day}.{nonzero}.{year}", "{year}-0{nonzero}-1#",
    ),
    "time": ("1#:15", "{nonzero}:30", "{nonzero} pm", "noon"),
    "price": ("${nonzero}#.##", "EUR {nonzero}##", "£{nonzero},###.##", "{nonzero}### dollars"),
    "quantity": ("{nonzero}", "{nonzero}#", "two", "three", "a dozen"),
    "order": (
        "{nonzero}##-{nonzero}######", "{nonzero}#####", "A{nonzero}##/{year}", "212-555-01##-#",
        "555-01##", "#####-####", "{nonzero}## ### ###",
    ),
    "role": ("info", "list", "news", "noreply", "orders", "office", "help"),
    "subject": (
        "{adj_cap} {noun}", "Re: {noun} {prep} {city}", "{company}: {noun}", "{noun} {date}",
    ),
    "adj_cap": ("New", "Urgent", "Your", "Missing", "Final", "Draft", "Monthly", "Revised"),
    "greeting": (
        "Dear {person},", "Dear {title} {last},", "Hi {first},", "Hello {me_first},", "{first},",
        "Dear Sir or Madam,", "Hello all,", "Dear colleagues,", "Good morning {first},",
        "Hallo {first},",
    ),
    "sign_off": (
        "Thanks,", "Best,", "Cheers,", "Regards,", "See you {weekday},", "--", "Take care,",
    ),
    "header": (
        "From: {person} <{role}@{plain_domain}>\nTo: {person}\nSubject: {subject}\n",
        "From: {last}, {first}\nSent: {weekday}, {date} {time}\nTo: {person}\nSubject: {subject}\n",
        "Date: {date}\nFrom: {first}.{last}@{plain_domain}\nSubject: {subject}\n",
        "On {date} {person} wrote:\n",
    ),
    "separator_line": (
        "-----Original Message-----\n", "---------- Forwarded message ----------\n", "_____\n", "",
    ),
    "heading": (
        "{adj_cap} {noun}", "About {company}", "Contact", "Minutes of the {noun} {noun}, {date}",
        "{company} News {year}", "Welcome to {city}", "Staff", "{department}",
    ),
    "order_line": (
        "{nonzero} x {adj} {noun} {order} {price}", "{order} {noun} {quantity} {price}",
        "Subtotal {price}", "Shipping {price}", "VAT no. {order}", "{noun} {date} {price}",
    ),
    "minute": (
        "Present: {person}, {person}, {person}", "Apologies: {person} ({company})",
        "Action: {first} to {verb} the {noun} by {date}", "{nonzero}. {clause}",
        "Next {noun}: {date}, {time}",
        "{first}: {clause_low}", "Contact: none yet", "Venue: {city}, room ###",
    ),
}  # fmt: skip

_NAMES = {
    # Every other name is composed, so that documents keep showing words never seen before.
    "first": ("{first_known}", "{first_known}", "{first_known}", "{first_start}{first_end}"),
    "first_known": words.FIRST_NAMES,
    "first_start": words.FIRST_STARTS,
    "first_end": words.FIRST_ENDS,
    "last": ("{last_known}", "{stem}{ending}", "{stem}{ending}", "{last_known}-{stem}{ending}"),
    "last_known": words.SURNAMES,
    "person": (
        "{first} {last}", "{first} {last}", "{title} {last}", "{first}",
        "{first} {initial}. {last}",
    ),
    "stem": words.STEMS,
    "ending": words.ENDINGS,
    "initial": tuple("ABCDEFGHJKLMNPRSTVW"),
    "middle": ("{initial}.", "{initial}.", "{initial}", "{first}", "{last_known}", "de la", "van"),
    "nickname": (*words.NICKNAMES, "{first_start}{first_end}"),
    "suffix": words.SUFFIXES,
    "title": words.TITLES,
    "job": (
        "{job_known}", "{job_rank} {job_field} {job_noun}", "{job_field} {job_noun}",
        "{job_rank} {job_field}", "{job_noun}",
    ),
    "job_known": words.JOBS,
    "job_rank": words.JOB_RANKS,
    "job_field": words.JOB_FIELDS,
    "job_noun": words.JOB_NOUNS,
    "job_low": ("the new {job_noun}", "our {job_field} {job_noun}", "{job}"),
    "department": (
        "{department_known}", "Department of {department_field}", "Dept. of {department_field}",
        "{department_field} Division", "School of {department_field}",
        "Institut für {department_field}",
    ),
    "department_known": words.DEPARTMENTS,
    "department_field": words.DEPARTMENT_FIELDS,
    "company": (
        "{company_name} {company_form}", "{company_name}", "{last} {trade}", "{last} & {last}",
        "{last} & Sons {company_form}", "{city} {trade}", "University of {city}",
        "The {noun_cap} {trade}",
        "{last}, {last} and {last} {company_form}", "{company_name} {trade}",
    ),
    "company_name": ("{company_start}{company_end}",),
    "company_start": words.COMPANY_STARTS,
    "company_end": words.COMPANY_ENDS,
    "company_form": words.COMPANY_FORMS,
    "trade": words.COMPANY_TRADES,
    "noun_cap": ("Green", "Blue", "Old Mill", "Castle", "River", "Market", "Garden", "White Rose"),
}  # fmt: skip

_PLACES = {
    "city": (
        "{city_known}", "{stem}{ending}", "New {stem}{ending}", "{stem}{ending} {city_end}",
        "St. {first}",
    ),
    "city_known": words.CITIES,
    "city_end": ("Falls", "Springs", "Heights", "Bay", "Park", "Green", "City"),
    "us_city": ("{city}",),
    "uk_city": ("{city}", "{stem}{ending}-on-{stem}", "Great {stem}{ending}"),
    "ca_city": ("{city}",),
    "au_city": ("{city}", "Mount {stem}{ending}", "Wa{first_end}{first_end}"),
    "de_city": (
        "{de_stem}{de_ending}", "Bad {de_stem}{de_ending}", "{de_stem}{de_ending} am Main",
        "Berlin",
    ),
    "de_stem": words.DE_STEMS,
    "de_ending": words.DE_ENDINGS,
    "fr_city": (
        "{fr_stem}{fr_ending}", "Saint-{first}-sur-{fr_river}", "{fr_stem}{fr_ending} Cedex 0#",
        "Paris",
    ),
    "fr_stem": words.FR_STEMS,
    "fr_ending": words.FR_ENDINGS,
    "fr_river": words.FR_RIVERS,
    "se_city": ("{se_stem}{se_ending}", "Norra {se_stem}{se_ending}"),
    "se_stem": words.SE_STEMS,
    "se_ending": words.SE_ENDINGS,
    "us_state": words.US_STATES,
    "uk_state": words.UK_COUNTIES,
    "ca_state": words.CA_PROVINCES,
    "au_state": words.AU_STATES,
    "us_country": ("USA", "U.S.A.", "United States"),
    "uk_country": ("UK", "United Kingdom", "England", "Scotland", "Wales"),
    "ca_country": ("Canada", "CANADA"),
    "au_country": ("Australia",),
    "de_country": ("Germany", "Deutschland", "GERMANY"),
    "fr_country": ("France",),
    "se_country": ("Sweden", "SWEDEN", "Sverige"),
    "us_postal": ("#####", "#####", "#####-####"),
    "uk_postal": (
        "{initial}{initial}{nonzero} #{initial}{initial}", "{initial}## #{initial}{initial}",
    ),
    "ca_postal": ("{initial}#{initial} #{initial}#",),
    "au_postal": ("{nonzero}###",),
    "de_postal": ("{nonzero}####", "D-{nonzero}####"),
    "fr_postal": ("{nonzero}####", "F-{nonzero}####"),
    "se_postal": ("{nonzero}## ##", "SE-{nonzero}## ##"),
    "street": words.STREET_NAMES,
    "street_type": words.STREET_TYPES,
    "street_number": ("{nonzero}", "{nonzero}#", "{nonzero}##", "{nonzero}###", "{nonzero}#B"),
    "us_street": (
        "{street_number} {street} {street_type}", "{street_number} {last} {street_type}",
        "{street_number} {stem}{ending} {street_type}, Suite {nonzero}##",
        "{street_number} N. {street} {street_type}\n{nonzero}th Floor", "P.O. Box {nonzero}###",
        "{street_number} {nonzero}th {street_type}, Apt. {nonzero}{initial}",
        "One {street} Plaza",
        "{last} Hall, Room {nonzero}##\n{street_number} {street} {street_type}",
    ),
    "uk_street": (
        "{street_number} {street} {street_type}", "{last} House, {street_number} {street} Road",
        "The Old {street}, {last} Lane", "Flat {nonzero}, {street_number} {stem}{ending} Road",
        "Unit {nonzero}\n{stem}{ending} Business Park", "{nonzero} {street} Mews",
    ),
    "ca_street": ("{us_street}", "{nonzero}##, rue {last}", "R.R. {nonzero}"),
    "au_street": (
        "{us_street}", "Level {nonzero}, {street_number} {street} Parade", "GPO Box {nonzero}##",
    ),
    "de_street": (
        "{last_known}straße {street_number}", "{de_stem}weg {street_number}",
        "Am {de_stem}{de_ending} {nonzero}",
        "{first}-{last}-Str. {street_number}", "Postfach {nonzero}# ##",
        "{de_stem}platz {nonzero}a",
    ),
    "fr_street": (
        "{street_number}, rue {first} {last}", "{nonzero} bis, avenue de {fr_stem}{fr_ending}",
        "{street_number} boulevard {last}", "BP {nonzero}##",
        "{nonzero}, place de la Gare\nBâtiment {initial}",
    ),
    "se_street": (
        "{se_stem}gatan {street_number}", "{se_stem}vägen {nonzero} {initial}", "Box {nonzero}##",
    ),
}  # fmt: skip

_REACH = {
    "area": ("201", "206", "212", "303", "312", "415", "503", "604", "617", "702", "808", "919"),
    "us_phone": (
        "({area}) 555-01##", "{area}-555-01##", "{area}.555.01##", "+1 {area} 555 01##",
        "1-{area}-555-01##",
        "555-01##", "({area}) 555-01## ext. {nonzero}##", "{area}/555-01## x{nonzero}#",
        "{area} 555 01##",
    ),
    "ca_phone": ("{us_phone}",),
    "uk_phone": (
        "020 7946 0###", "(020) 7946 0###", "+44 20 7946 0###", "+44 (0)20 7946 0###",
        "01632 960###",
        "01632 960 ###", "07700 900###", "+44 7700 900###", "0113 496 0###", "0161 496 0###",
    ),
    "au_phone": ("(02) 5550 ####", "+61 2 5550 ####", "03 7010 ####", "(08) 5550 ####"),
    "de_phone": (
        "030 23125 ###", "030/23125-###", "+49 30 23125 ###", "+49 (0)40 66969 ###",
        "(069) 90009-###",
        "089-99998-###", "+49 221 4710 ###",
    ),
    "fr_phone": (
        "01 99 00 ## ##", "02.61.91.##.##", "+33 4 65 71 ## ##", "+33 (0)5 36 49 ## ##",
        "06 39 98 ## ##",
    ),
    "se_phone": ("08-465 004 ##", "+46 8 465 004 ##", "031-390 06 ##", "+46 (0)40 628 04 ##"),
    "plain_domain": (
        "example.com", "example.org", "example.net", "mail.example.com", "lists.example.org",
    ),
    "me_domain": (
        "{slug_company}.example", "{slug_company}.example", "{slug_company}.example.com",
        "example.org",
        "example.net", "mail.example.com",
    ),
    "email": (
        "{slug_first}.{slug_last}@{me_domain}", "{slug_first}@{me_domain}",
        "{slug_last}@{me_domain}",
        "{slug_first}_{slug_last}@{me_domain}", "{slug_first}{slug_last}##@{me_domain}",
        "{slug_first} at {me_domain}", "{slug_last} (at) example (dot) com",
    ),
    "handle": (
        "{slug_first}{slug_last}##", "@{slug_first}_{slug_last}", "{slug_last}.{nonzero}#",
        "{slug_first}##",
        "{slug_first}@chat.example", "@{slug_last}:matrix.example",
        "{slug_last}@jabber.example.net",
    ),
    "webpage": (
        "www.{me_domain}", "http://www.{me_domain}/", "https://{me_domain}/people/{slug_last}",
        "http://www.example.org/~{slug_last}", "{slug_last}.example.net", "{slug_company}.example",
    ),
    "comma": (",", ",", ""),
    "bar": ("|", "|", "/", "-", ","),
    "name_cue": ("Name: ", "Attn: ", "c/o "),
    "title_cue": ("Title: ", "Position: ", "Role: "),
    "company_cue": ("Company: ", "Organization: ", "Employer: "),
    "address_cue": ("Address: ", "Mail: ", "Office: ", "Visit us: "),
    "tel_cue": (
        "Tel: ", "Phone: ", "Telephone: ", "T ", "Ph. ", "Mobile: ", "Cell: ", "Office: ",
        "Tel. ", "Direct line: ",
        "Téléphone : ", "Telefon: ", "p: ", "Home ",
    ),
    "fax_cue": ("Fax: ", "Fax ", "F: ", "Facsimile: ", "Mobile: ", "Fax (office): "),
    "mail_cue": ("E-mail: ", "Email: ", "Mail: ", "e: ", "mailto: ", "E-Mail "),
    "web_cue": ("Web: ", "WWW: ", "Home page: ", "URL: ", "Visit us: ", "w: "),
    "im_cue": (
        "IM: ", "Chat: ", "Jabber: ", "XMPP: ", "Messenger: ", "Matrix: ", "IRC nick ", "chat ",
    ),
}  # fmt: skip

# What the sender's details stand for while a document has no sender yet.
_SENDER = {
    "me_first": ("{first}",),
    "me_last": ("{last}",),
    "me_company": ("{company}",),
}

GRAMMAR = {**_TEXT, **_NAMES, **_PLACES, **_REACH, **_SENDER}
