"""Grammar of the documents that `make_contacts` generates, as data.

A symbol named after a label, in lower case, is the text of that field; ``us_city`` is that of one
country. A
symbol that ends in ``_cue`` may be left out. Lists overlap on purpose (Lincoln is a name and a
city, Page a surname and a noun): a word alone does not determine its label. Telephone numbers come
from the ranges that the regulators keep free for fiction, mail and web addresses from the domains
reserved by RFC 2606: no document can contain the details of a real person.
"""

from ._random_text import read_grammar

# Probability that a contact has the field; an address is left out as a whole half of the time.
FIELDS = {
    "FIRSTNAME": 0.97, "MIDDLENAME": 0.25, "LASTNAME": 0.95, "NICKNAME": 0.3, "SUFFIX": 0.16,
    "TITLE": 0.22, "JOBTITLE": 0.6, "DEPARTMENT": 0.35, "COMPANYNAME": 0.65, "EMAIL": 0.7,
    "INSTANTMESSAGE": 0.3, "WEBPAGE": 0.35, "ADDRESSLINE": 1, "CITY": 1, "POSTALCODE": 1,
    "STATE": 0.8, "COUNTRY": 0.4,
}  # fmt: skip
ADDRESS = {"ADDRESSLINE", "CITY", "POSTALCODE", "STATE", "COUNTRY"}
REACH = {"EMAIL", "INSTANTMESSAGE", "WEBPAGE"}

_WORDS = """
code: us us us uk uk de
first_known: Aaron Ahmed Andrea Astrid Austin Barbara Carlos Chase Claire Dawn Dean Eva Fatima
    Florence Frank Georgia Grant Heidi Hope Jack Jean Karin Laura Leon Lincoln Madison Marie Mark
    May Mei Nadia Owen Petra Ravi Rich Robin Rose Sean Sofia Sydney Thomas Ursula Virginia Will
first_start: Al An Ar Be Bri Ca Da De El Fa Ga Ha Is Jo Ka La Le Ma Me Mi Na Or Ra Ro Sa Sha Ta Vi
first_end: bel bert da den dra la leigh lina lo mar mel na nard nia rell rian rin son tine ton wyn
last_known: Abbott Ahmad Austin Baker Banks Bell Brook Brown Castle Chan Chase Cook Day Dean Dubois
    Field Florence Fox Frank Grant Gupta Hall Hamilton Hill Houston Ivanov Jackson James King Kumar
    Lee Lincoln London Long Lopez Marsh May Moreau Nguyen Novak Page Paris Patel Price Reading Rich
    Robin Rose Sato Schmidt Silva Singh Small Stone Street Temple Weiß West Winter Wood
stem: Ald Ash Barn Beck Brad Brock Burn Clay Dun East Fair Farn Hal Hart Haw Kel Lang Lin Long Mar
    Mer New Nor Oak Old Rad Red Rock Sand Stan Thorn Wake
ending: berry borough bourne bridge brook burn bury combe dale den don field ford gate hurst land
    leigh ley man minster mouth ster stone ton wall well wick wood
city_known: Arlington Austin Berlin Bristol Charlotte Chester Cork Dallas Florence Hamilton Houston
    Jackson Lincoln London Madison Mobile Nancy Orange Oxford Paris Reading Salem Sydney Troy
    Victoria Warren
de_stem: Alten Birken Bruch Ebers Eichen Feld Grün Hohen Kirch Königs Linden Lüne Mühl Neu Rosen
de_ending: bach berg brück burg dorf feld furt hausen heim hofen rode stadt thal
initial: A B C D E F G H J K L M N P R S T V W
nonzero: 1 2 3 4 5 6 7 8 9
nickname: Ace Bear Biff Buzz Chip Doc Fizz Ginger Hank Lefty Mac Max Nick Pip Red Rusty Skip Sunny
    Tish Woody
suffix: Jr. Jr Sr. II III Ph.D. PhD MD M.D. MBA CPA RN OBE
job_rank: Senior Junior Chief Deputy Assistant Associate Executive Lead Regional Acting
job_noun: Manager Engineer Analyst Officer Consultant Director Specialist Architect Editor Buyer
study: Biology Chemistry Economics Finance Geology History Linguistics Logistics Medicine Physics
company_start: Acu Alpha Aqua Blue Clear Cyber Delta Digi Eco Geo Info Inter Macro Medi Omni Pro
    Quanta Syn Tele Terra Uni Vista
company_end: base byte com core data form graph grid link logic med net path plan scan soft span
    tech tron ware
trade: Bakery Books Brewing Chemicals Energy Engineering Foods Industries Insurance Logistics Motors
    Museum Optics School Software Systems
street: Bridge Canal Castle Chapel Church Garden Hill Lake Lincoln Madison Main Mill Oak Queen River
    Rose Station Victoria
street_type: Street St. Avenue Ave. Ave Road Rd. Lane Ln Drive Dr. Court Ct. Way Blvd Place
month: January February March April May June July August September October November December
weekday: Monday Tuesday Wednesday Thursday Friday Saturday Sunday
noun: account agenda answer archive bill budget contract customer date delivery department draft
    exhibition fax figure flight garden group hall house invoice issue kitchen letter list manager
    meeting message morning museum network offer order page paper park partner phone position
    printer product project question record request room sale schedule service session software
    station story system table team tour town update user visit week
adj: annual available better big blue clear current early easy extra final first fresh good green
    happy helpful last late local main major national old open original public quick ready regional
    short single special strong
verb: accept add answer approve book cancel check close collect compare explain fax file fix follow
    improve keep leave mail mark miss move open order phone post print raise repair review schedule
    see sell sign start test use
adv: again already also clearly finally hardly mostly often perhaps quickly recently simply soon
    still today tomorrow
prep: about after at before behind by for from in into near of on over under with without
role: info list news noreply orders office help
plain_domain: example.com example.org example.net mail.example.com lists.example.org
area: 201 206 212 303 312 415 503 604 617 702 808 919
"""

_TEMPLATES = """
first: {first_known} | {first_known} | {first_known} | {first_start}{first_end}
last: {last_known} | {stem}{ending} | {stem}{ending} | {last_known}-{stem}{ending}
person: {first} {last} | {first} {last} | {title} {last} | {first} | {first} {initial}. {last}
firstname: {first}
lastname: {last}
middlename: {initial}. | {initial}. | {initial} | {first} | {last_known} | de la | van
title: Dr. | Dr | Prof. | Professor | Mr. | Mrs. | Ms. | Ms | Sir | Rev. | Herr | Frau | Mme
    | Prof. Dr. | Dr.-Ing.
jobtitle: {job_known} | {job_rank} {job_field} {job_noun} | {job_field} {job_noun} | {job_noun}
    | {job_rank} {job_field} | Head of {job_field} | Vice President, {job_field}
job_field: Sales | Marketing | Research | Software | Finance | Human Resources | Customer Support
    | Quality | Product | Data | Network | Legal | Security | Training
job_known: Attorney at Law | Office Manager | Founder | Managing Partner | Professor of {study}
    | Dean of Students | Travel Agent | Geschäftsführer | Parish Clerk | Staff Nurse
department: {job_field} | Department of {study} | {study} Division | Dept. of {study}
    | School of {study} | Press Office | Institut für {study} | Customer Care | Accounts Payable
companyname: {company}
company: {company_start}{company_end} {company_form} | {company_start}{company_end} | {last} {trade}
    | {last} & Sons {company_form} | {city} {trade} | University of {city} | The {street} {trade}
    | {last}, {last} and {last} {company_form}
company_form: Inc. | Inc | LLC | Ltd | Ltd. | Corp. | Corporation | plc | GmbH | AG | S.A. | & Co.
    | Group | LLP
domain: {slug_companyname}.example | {slug_companyname}.example.com | example.org | mail.example.com
email: {slug_firstname}.{slug_lastname}@{domain} | {slug_firstname}@{domain}
    | {slug_firstname}{slug_lastname}##@{domain} | {slug_lastname} (at) example (dot) com
instantmessage: {slug_firstname}{slug_lastname}## | @{slug_firstname}_{slug_lastname}
    | {slug_firstname}@chat.example | @{slug_lastname}:matrix.example
webpage: www.{domain} | https://{domain}/people/{slug_lastname} | {slug_lastname}.example.net
city: {city_known} | {stem}{ending} | New {stem}{ending} | {stem}{ending} Falls | St. {first}
number: {nonzero} | {nonzero}# | {nonzero}## | {nonzero}### | {nonzero}#B
us_address: {ADDRESSLINE}¶{CITY}[, {STATE}] {POSTALCODE}[¶{COUNTRY}]
us_addressline: {number} {street} {street_type} | {number} {last} {street_type}
    | {number} {stem}{ending} {street_type}, Suite {nonzero}## | P.O. Box {nonzero}###
    | {number} N. {street} {street_type}¶{nonzero}th Floor
us_state: Alabama | California | Florida | Maine | Montana | New York | Texas | Virginia
    | Washington | CA | DC | FL | IN | MA | NC | NY | OK | OR | TX | VA
us_postalcode: ##### | ##### | #####-####
us_country: USA | U.S.A. | United States
us_phonenumber: ({area}) 555-01## | {area}-555-01## | +1 {area} 555 01## | 555-01##
    | {area}.555.01## ext. {nonzero}##
uk_address: {ADDRESSLINE}¶{CITY}[¶{STATE}]¶{POSTALCODE}[¶{COUNTRY}]
uk_addressline: {number} {street} {street_type} | {last} House, {number} {street} Road
    | Flat {nonzero}, {number} {stem}{ending} Road | Unit {nonzero}¶{stem}{ending} Business Park
uk_city: {city} | {stem}{ending}-on-{stem} | Great {stem}{ending}
uk_state: Kent | Essex | Surrey | Norfolk | Devon | Cumbria | Lancashire | Yorkshire | Fife
uk_postalcode: {initial}G{nonzero} #{initial}T | {initial}## #{initial}D
uk_country: UK | United Kingdom | England | Scotland | Wales
uk_phonenumber: (020) 7946 0### | +44 (0)20 7946 0### | 01632 960### | 07700 900### | 0161 496 0###
de_address: {ADDRESSLINE}¶{POSTALCODE} {CITY}[¶{COUNTRY}]
de_addressline: {last_known}straße {number} | {de_stem}weg {number} | Postfach {nonzero}# ##
    | Am {de_stem}{de_ending} {nonzero} | {first}-{last}-Str. {number}
de_city: {de_stem}{de_ending} | Bad {de_stem}{de_ending} | {de_stem}{de_ending} am Main | Berlin
de_postalcode: {nonzero}#### | D-{nonzero}####
de_country: Germany | Deutschland | GERMANY
de_phonenumber: 030/23125-### | +49 (0)40 66969 ### | (069) 90009-### | 089-99998-###
name_line: [{TITLE} ]{FIRSTNAME}[ {MIDDLENAME}] {LASTNAME}[, {SUFFIX}]
    | [{TITLE} ]{FIRSTNAME}[ "{NICKNAME}"] {LASTNAME}[, {SUFFIX}]
    | {FIRSTNAME}[ ({NICKNAME})] {LASTNAME}[, {SUFFIX}]
    | {LASTNAME}, {FIRSTNAME}[ {MIDDLENAME}][, {TITLE}][, {SUFFIX}]
    | {name_cue} {FIRSTNAME}[ {MIDDLENAME}] {LASTNAME}[, {JOBTITLE}] | {FIRSTNAME}[ "{NICKNAME}"]
    | [{TITLE} ]{LASTNAME}[ ({COMPANYNAME})]
role_lines: [{JOBTITLE}¶][{DEPARTMENT}¶][{COMPANYNAME}¶] | [{JOBTITLE}, {COMPANYNAME}¶]
    | [{COMPANYNAME}¶][{DEPARTMENT}¶] | [{COMPANYNAME} - {DEPARTMENT}¶]
    | [{title_cue} {JOBTITLE}¶][{company_cue} {COMPANYNAME}¶] |
place_lines: [{address}¶] | [{address_cue} {address_in_line}¶] | [{CITY}¶]
reach_lines: [{PHONENUMBER}¶][{mail_cue} {EMAIL}¶][{web_cue} {WEBPAGE}¶][{im_cue} {INSTANTMESSAGE}¶]
    | [{tel_cue} {PHONENUMBER}¶{fax_cue} {PHONENUMBER}¶][{INSTANTMESSAGE}¶][{mail_cue} {EMAIL}¶]
    | [{tel_cue} {PHONENUMBER}][ / {mail_cue} {EMAIL}][ / {web_cue} {WEBPAGE}]¶
    | [{mail_cue} {EMAIL}][ / {im_cue} {INSTANTMESSAGE}]¶[{web_cue} {WEBPAGE}¶]
    | [{web_cue} {WEBPAGE}¶][{mail_cue} <{EMAIL}>¶][{tel_cue} {PHONENUMBER} / {PHONENUMBER}¶]
    | [{EMAIL}¶][{PHONENUMBER}¶][{fax_cue} {PHONENUMBER}¶][{WEBPAGE}¶]
inline: [{TITLE} ]{FIRSTNAME} {LASTNAME}[ of {COMPANYNAME}][ at {PHONENUMBER}][ or {EMAIL}]
    | {FIRSTNAME} {LASTNAME}[, {JOBTITLE},][ on {PHONENUMBER}][ (or {INSTANTMESSAGE})]
    | [{TITLE} ]{LASTNAME}[ in {CITY}][ by e-mail: {EMAIL}][, phone {PHONENUMBER}]
    | {FIRSTNAME}[ <{EMAIL}>][ or {PHONENUMBER}]
    | {FIRSTNAME} {LASTNAME}[, {DEPARTMENT}][, {address_in_line}][, {EMAIL}][, {WEBPAGE}]
name_cue: Name: | Attn: | c/o
title_cue: Title: | Position:
company_cue: Company: | Organization: | Employer:
address_cue: Address: | Mail: | Office: | Visit us:
tel_cue: Tel: | Phone: | Telephone: | Ph. | Mobile: | Office: | Tel. | Direct line: | Telefon: | p:
fax_cue: Fax: | Fax | F: | Facsimile: | Mobile: | Fax (office):
mail_cue: E-mail: | Email: | Mail: | e: | mailto: | E-Mail
web_cue: Web: | WWW: | Home page: | URL: | Visit us: | w:
im_cue: IM: | Chat: | Jabber: | XMPP: | Messenger: | Matrix: | IRC nick | chat
signature_begin: Regards, | Kind regards, | Best regards, | Best, | Thanks, | Many thanks, | -- | --
    | Cheers, | Sincerely, | Yours faithfully, | Mit freundlichen Grüßen | Cordialement,
signature_end: -- | Sent from my phone | This message is confidential. | *** | PS: | ___
    | Enclosures
card_begin: Contact: | Contact information | For more information: | Enquiries: | Media contact:
    | How to reach us | Ship to: | Bill to: | Venue: | New member: | Speaker:
card_end: Office hours by appointment | Back to top | --- | *** | Edit this entry
    | Map and directions | End of record
inline_begin: Please contact | Please call | You can reach | Questions? Write to | RSVP to
    | Send comments to | For details ask | My new contact is | Get in touch with
inline_end: any time. | for details. | during office hours. | with questions. | by {weekday}.
    | if you need help. | before {date}.
sentence: {clause}. | {clause}. | {clause}. | {clause}. | {clause} {prep} the {adj} {noun}.
    | However, the {noun} {prep} the {noun} was {adj}.
    | Could you {verb} the {noun} {prep} {weekday}? | Did {person} {verb} the {adj} {noun}?
    | Please contact the {noun} if the {noun} is {adj}.
    | You can reach the {noun} from the {adj} {noun}. | I met {person} in {city} last {weekday}.
    | {firstname} will {verb} the {noun} in {month}. | I met {firstname} {prep} the {noun}.
    | {person} of {company} will {verb} the {noun} on {date}.
    | {person}, our {jobtitle}, moved from {city} to {city}. | Ticket {order}: the {noun} is {adj}.
    | {company} opened a {adj} {noun} in {city}, {us_state}.
    | Many thanks to {person} for the {noun}.
    | The train to {city} leaves at {time} from platform #. | The {noun} in {city} costs {price}.
    | Invoice {order} over {price} is due {date}. | The support line {uk_phonenumber} is {adj}.
    | For support dial {us_phonenumber}. | To unsubscribe write to {role}@{plain_domain}.
    | Best regards from {city} to {firstname}! | The {noun} is at http://www.{plain_domain}/{noun}.
    | The venue is {number} {street} Road. | The {noun} "{adj} {noun}" was {adj}.
    | The {department} {adv} called. | Mark will bill the {noun}; may I {verb} it?
clause: The {noun} {prep} the {adj} {noun} is {adj} | The {adj} {noun} {adv} needs a {noun}
    | We {adv} {verb} the {noun} | I {adv} {verb} the {adj} {noun} | They {verb} it {prep} {city}
    | A {noun} {prep} {month} is {adj} | {person} will {verb} the {noun}
day: {nonzero} | 1# | 2{nonzero}
year: 199# | 200# | 201#
date: {day} {month} | {month} {day}, {year} | {day}.{nonzero}.{year} | {year}-0{nonzero}-1#
time: 1#:15 | {nonzero}:30 | {nonzero} pm | noon
price: ${nonzero}#.## | EUR {nonzero}## | £{nonzero},###.##
order: {nonzero}##-{nonzero}###### | A{nonzero}##/{year} | 212-555-01##-# | 555-01## | #####-####
greeting: Dear {person}, | Dear {title} {last}, | Hi {first}, | Hello {firstname}, | {first},
    | Dear Sir or Madam, | Hello all,
header: From: {person} <{role}@{plain_domain}>¶To: {person}¶Subject: {heading}
    | From: {last}, {first}¶Sent: {weekday}, {date} {time}¶Subject: {heading} | {date} | |
separator_line: -----Original Message----- | On {date} {person} wrote: | _____ |
heading: Urgent {noun} | About {company} | Re: {noun} {prep} {city} | Contact
    | {company} News {year} | Staff | {department} | {noun} {date}
order_line: {nonzero} x {adj} {noun} {order} {price} | Subtotal {price} | VAT no. {order}
    | {noun} {date} {price}
minute: Present: {person}, {person} | Apologies: {person} ({company})
    | Action: {first} to {verb} the {noun} by {date} | Next {noun}: {date}, {time}
    | Venue: {city}, room ###
"""

GRAMMAR = read_grammar(_WORDS, _TEMPLATES)
