"""Words of the invented contact documents: terminals of the grammar in `_contacts_grammar`.

Single words are blank-separated, phrases stand one on a line. Lists overlap on purpose (Lincoln is
a name and a city, Page a surname and a noun): a word alone does not tell its label.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


FIRST_NAMES = _words("""
    Aaron Adele Agnes Ahmed Alan Alice Amir Anders Andrea Anita Anja Anna Antoine Arthur Astrid
    Austin Barbara Beatrice Ben Bill Birgit Boris Brigitte Bruce Carla Carlos Carol Catherine Chase
    Chen Chloe Claire Claude Clemens Dawn Dean Deborah Denise Dieter Dmitri Dolores Edgar Elena Ella
    Emil Emma Erik Esther Eva Fatima Florence Francis Frank Gabriel Georgia Gerald Grace Grant
    Greta Gunnar Hannah Harold Heidi Helen Hope Hugo Ingrid Irene Isaac Ivan Jack Jacques Jade
    Jamal James Jane Jean Jordan Joyce Julia June Kai Karin Karl Kenji Lars Laura Leila Leon
    Lincoln Linda Lucas Madison Marc Marie Mario Mark Martha Martin May Mei Mia Mona Monica Nadia
    Neil Nina Noah Nora Olga Oliver Oscar Owen Pascal Paul Peter Petra Priya Quentin Rachel Rafael
    Ravi Rich Rita Robin Rosa Rose Ruth Samir Sandra Sean Sofia Sophie Stefan Sunil Svenja Sydney
    Tamara Tariq Theo Thomas Tim Ulrich Ursula Vera Victor Virginia Walter Wei Will Xavier Yara
    Yusuf Yves Zoe
""")
FIRST_STARTS = _words("""
    Al An Ar Be Bri Ca Da De El Fa Ga Gre Ha Is Jo Ka Ke La Le Li Lo Ma Me Mi Na Ni Or Ra Ro Sa Se
    Sha Ta Te Va Vi Ya
""")
FIRST_ENDS = _words("""
    bel bert da den dine dra la lan lene leigh lia lina lo mar mel mina na nard neth nia nor ra ran
    rell rian rick rin sha son ta tine ton va vin wyn
""")
SURNAMES = _words("""
    Abbott Adler Ahmad Andersson Austin Baker Banks Barnes Baumann Bell Berger Bernard Bishop Blanc
    Bond Booth Brandt Brook Brown Burns Carter Castle Chan Chapman Chase Christie Cole Cook Costa
    Court Cross Day Dean Drake Dubois Dumas Ekström Ellis Faber Field Fischer Florence Ford
    Forest Fournier Fox Frank Fuchs Garnier Gates Grant Green Gupta Hall Hamilton Hansen Hart
    Haynes Hill Holm Houston Hunt Ivanov Jackson Jäger James Johansson Jordan Kaplan Keller Khan
    King Knight Koch Kovacs Kumar Lacroix Lambert Lane Lee Lincoln Lindqvist London Long Lopez Major
    Marsh Marshall Martin Mason May Mehta Mercier Meyer Miles Miller Moreau Moreno Müller Nguyen
    Noble Novak Nyström Page Paris Park Patel Pierce Porter Power Price Prince Quinn Ray Reading
    Reed Rich Rivers Robin Rose Rousseau Rowe Sato Schäfer Schmidt Sharp Shaw Silva Singh Small
    Speer Stone Street Strong Suzuki Tanaka Taylor Temple Thomas Torres Vogel Wagner Walker Walsh
    Ward Warren Waters Webb Weiß Wells West White Winter Wolf Wood Worth York Young Zhang
""")
# Surnames and towns grow from the same stems and endings, as in England.
STEMS = _words("""
    Ald Ash Barn Beck Bern Black Brad Brock Burn Cald Carl Clay Cran Dal Dun East Ell Fair Farn Glen
    Gran Had Hal Hare Hart Haw Hol Kel Kirk Lang Lin Long Lyn Mar Mer Mil New Nor Oak Old Pem Pres
    Rad Red Rock Sand Shel Stan Stock Stour Sut Thorn Wake Wal War Wat Wel Whit Win Wood Wor
""")
ENDINGS = _words("""
    berry borough bourne bridge brook burn bury by combe cott dale den don field ford gate ham hurst
    land leigh ley low man mere minster mond mont mouth sby shaw ster stone ton wall well wick wood
    worth
""")
CITIES = _phrases("""
    Arlington
    Austin
    Berlin
    Bristol
    Charlotte
    Chester
    Cologne
    Cork
    Dallas
    Eugene
    Florence
    Hamilton
    Helena
    Houston
    Jackson
    Lancaster
    Lincoln
    London
    Los Reyes
    Madison
    Marshall
    Mobile
    Nancy
    New York
    Orange
    Oxford
    Paris
    Phoenix
    Reading
    Salem
    San Marco
    Sydney
    Troy
    Victoria
    Warren
    York
""")
DE_STEMS = _words("""
    Alten Birken Bruch Burg Ebers Eichen Feld Frei Gold Grün Hohen Kirch Königs Linden Lüne Mühl Neu
    Ober Rosen Schön Stein Tal Unter Wald Weiden Wolfs
""")
DE_ENDINGS = _words(
    "bach berg brück burg dorf feld furt hausen heim hofen rode stadt stein thal au"
)
FR_STEMS = _words(
    "Aube Beau Bois Clair Fon Haute Mont Neuf Noir Roche Val Ver Ville Champ Chante Gran"
)
FR_ENDINGS = _words("bourg court fort lieu lac mont nay rieux sac selve ville vigne zon tin")
FR_RIVERS = _words("Loire Saône Marne Vienne Orne Oise Isère Lys")
SE_STEMS = _words(
    "Ask Berg Björk Ek Fal Grön Hall Kungs Lind Lund Norr Sand Sten Söder Väster Öster"
)
SE_ENDINGS = _words("köping borg by stad torp vik hamn näs sund ås")

NICKNAMES = _words("""
    Ace Bear Bee Bert Biff Billy Bo Bobby Buzz Chip Coco Cookie Dash Doc Dusty Fizz Fritz Ginger Gus
    Hank Jojo Kit Lefty Lou Lucky Mac Max Mickey Moose Nell Nick Penny Pip Red Rocky Rusty Scout
    Skip Sparky Stan Sunny Teddy Tex Tiny Tish Tony Trixie Turbo Woody Ziggy
""")
SUFFIXES = _phrases("""
    Jr.
    Jr
    Sr.
    II
    III
    IV
    Ph.D.
    PhD
    MD
    M.D.
    Esq.
    MBA
    CPA
    DDS
    RN
    OBE
    M.Sc.
""")
TITLES = _phrases("""
    Dr.
    Dr
    Prof.
    Professor
    Mr.
    Mrs.
    Ms.
    Ms
    Miss
    Sir
    Rev.
    Herr
    Frau
    Mme
    M.
    Prof. Dr.
    Dr.-Ing.
    Capt.
    Dame
    Hon.
""")

JOB_RANKS = _phrases("""
    Senior
    Junior
    Chief
    Deputy
    Assistant
    Associate
    Executive
    Vice President,
    Head of
    Director of
    Lead
    Regional
    Principal
    Acting
    Global
""")
JOB_FIELDS = _phrases("""
    Sales
    Marketing
    Research
    Software
    Finance
    Human Resources
    Customer Support
    Quality
    Field
    Project
    Product
    Data
    Network
    Operations
    Logistics
    Legal
    Communications
    Purchasing
    Security
    Training
""")
JOB_NOUNS = _words("""
    Manager Engineer Analyst Officer Consultant Director Coordinator Specialist Representative
    Architect Planner Controller Administrator Editor Advisor Scientist Buyer Designer
""")
JOBS = _phrases("""
    Attorney at Law
    Office Manager
    President and CEO
    CEO
    CTO
    Founder
    Managing Partner
    Lecturer
    Professor of Chemistry
    Reader in Economics
    Dean of Students
    Post-doctoral Fellow
    Graduate Student
    Veterinary Surgeon
    Account Executive
    Owner
    Translator
    Travel Agent
    Secretary to the Board
    Parish Clerk
    Geschäftsführer
    Directrice commerciale
    Realtor
    Staff Nurse
    Webmaster
""")
DEPARTMENTS = _phrases("""
    Accounts Payable
    Admissions Office
    Customer Care
    Human Resources
    IT Services
    Legal Department
    Press Office
    Public Affairs
    Quality Assurance
    Research and Development
    Sales
    Marketing
    Student Records
    Technical Support
    Purchasing
    Environmental Health
    Radiology
    Faculty of Arts
    Graduate School
    Abteilung Einkauf
    Service des ventes
""")
DEPARTMENT_FIELDS = _words("""
    Biology Chemistry Computing Economics Engineering Finance Geology Geography History
    Linguistics Logistics Mathematics Mechanics Medicine Music Nursing Philosophy Physics
    Planning Statistics Transport
""")

COMPANY_STARTS = _words("""
    Acu Agri Alpha Aqua Astra Auro Bio Blue Centra Clear Cyber Data Delta Digi Dyna Eco Elec Euro
    Ever Geo Globe Hydro Info Inter Kine Luma Macro Medi Meta Micro Mono Neo Nova Omni Opti Penta
    Pro Quanta Sola Spectra Sun Syn Tele Terra Trans Tri Uni Vari Vela Veri Vista Zen
""")
COMPANY_ENDS = _words("""
    base byte com core cast data dyne flex form gen graph grid lane line link logic mark max med
    metrics net nova pack path phase plan point scan sense soft span sys tech tek tron vision ware
    wave works
""")
COMPANY_FORMS = _phrases("""
    Inc.
    Inc
    LLC
    Ltd
    Ltd.
    Limited
    Corp.
    Corporation
    plc
    GmbH
    AG
    S.A.
    SARL
    AB
    & Co.
    Group
    Pty Ltd
    LLP
""")
COMPANY_TRADES = _phrases("""
    Bakery
    Books
    Brewing
    Capital Partners
    Catering
    Chemicals
    Consulting
    Design Studio
    Energy
    Engineering
    Foods
    Foundation
    Health Services
    Holdings
    Hotel
    Industries
    Insurance
    Law Offices
    Logistics
    Media
    Motors
    Museum
    Optics
    Printing
    Properties
    Publishing
    Research Institute
    School
    Software
    Steel
    Systems
    Travel
    University
    Yachts
""")

US_STATES = _phrases("""
    Alabama
    Arizona
    California
    Colorado
    Delaware
    Florida
    Georgia
    Indiana
    Maine
    Michigan
    Montana
    Nevada
    New Jersey
    New York
    North Carolina
    Ohio
    Oregon
    Texas
    Virginia
    Washington
    West Virginia
    AL
    AZ
    CA
    CO
    CT
    DC
    FL
    GA
    HI
    ID
    IL
    IN
    KS
    MA
    MD
    ME
    MI
    MN
    NC
    NJ
    NY
    OH
    OK
    OR
    PA
    TX
    VA
    WA
    WI
""")
CA_PROVINCES = _phrases("""
    Ontario
    Quebec
    British Columbia
    Alberta
    Nova Scotia
    ON
    BC
    QC
    AB
    NS
""")
AU_STATES = _phrases("""
    NSW
    VIC
    QLD
    WA
    Tasmania
    Victoria
    South Australia
""")
UK_COUNTIES = _words(
    "Kent Essex Surrey Norfolk Devon Cumbria Lancashire Lincs Cambs Yorkshire Fife"
)
STREET_NAMES = _words("""
    Birch Bridge Canal Castle Cedar Chapel Cherry Church College Elm Garden Hill Jubilee King Lake
    Lincoln Madison Main Maple Market Mill Oak Orchard Park Pine Queen River Rose School Spring
    Station Victoria Walnut Washington Water Windmill
""")
STREET_TYPES = _words(
    "Street St. St Avenue Ave. Ave Road Rd. Lane Ln Drive Dr. Court Ct. Way Blvd Place"
)

MONTHS = _words("""
    January February March April May June July August September October November December
""")
WEEKDAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
NOUNS = _words("""
    account agenda agreement answer application archive article balance bill budget building
    calendar call catalogue chapter client colleague comment committee concern contract cover
    customer date deadline decision delay delivery department design detail document draft edition
    email engine entry estimate evening event exhibition fax figure file flight form garden grant
    group guide hall hotel house idea index invoice issue item journey kitchen lecture lesson
    letter library list machine manager market meeting member memo message minute model morning
    museum network note number office offer opinion order package page paper park parcel partner
    payment phone picture plan policy position price printer problem product professor programme
    project proposal purchase quarter question reading receipt record reference report request
    result review room sale sample schedule school screen seminar server service session shop
    signature site software solution station story street student subject summary supplier survey
    system table talk team test ticket title tour town train translation trip update user vendor
    version visit visitor volume warehouse week window workshop year
""")
ADJECTIVES = _words("""
    annual attached available better big blue brief busy central clear close common complete
    confidential current daily different double early easy empty entire extra fair final fine
    first free fresh friendly full general good grand green happy heavy helpful important
    initial joint large last late local long main major minor missing monthly national new next
    noisy old open original other own perfect possible previous private public quick quiet ready
    recent red regional regular remote rich second separate serious short similar simple single
    small special strange strong sudden third tiny unusual urgent useful usual weekly whole
    wrong young
""")
VERBS = _words("""
    accept add answer approve arrange ask book bring call cancel carry change check close collect
    compare complete confirm consider copy correct deliver discuss drop end explain export fax
    file find finish fix follow forward grant handle improve include join keep leave list mail
    mark measure meet miss move need note open order organise page phone plan post prepare
    present print process propose raise read receive record reject repair replace reply request
    review save schedule see sell send share show sign start store study submit test train
    translate update use visit watch wish write
""")
ADVERBS = _words("""
    again already also certainly clearly finally generally hardly however largely mostly nearly now
    often perhaps probably quickly quite rarely recently simply sometimes soon still then therefore
    today together tomorrow usually well yesterday
""")
PREPOSITIONS = _words(
    "about after at before behind by for from in into near of on over under with without"
)
